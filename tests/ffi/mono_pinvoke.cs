// C# on Mono: P/Invoke.
using System;
using System.Runtime.InteropServices;
// docs: begin
partial class Program { const string so = "libpolyverso.so.0"; static long table; static float[] data = {1, 2, 3};
[DllImport(so)] static extern int mv_init(IntPtr options); [DllImport(so)] static extern IntPtr mv_last_error();
[DllImport(so)] static extern int mv_table_create_text(long node, string spec, float[] data, ulong n, int dtype, out long t);
[DllImport(so)] static extern int mv_table_add(long table, float[] data, ulong count, int dtype, IntPtr options);
[DllImport(so)] static extern int mv_table_get(long table, [Out] float[] data, ulong count, int dtype, IntPtr options);
static void Check(int status) { if (status != 0) throw new Exception(Marshal.PtrToStringAnsi(mv_last_error())); }
static void Start() { Check(mv_init(IntPtr.Zero)); Check(mv_table_create_text(0, "size=3 name=w", null, 0, 1, out table));
Check(mv_table_add(table, data, 3, 1, IntPtr.Zero)); Check(mv_table_get(table, data, 3, 1, IntPtr.Zero)); } }
// docs: end

partial class Program {
  [StructLayout(LayoutKind.Sequential)]
  struct CallOptions {
    public uint size, version, flags, reserved;
    public long timeout_ms;
    public IntPtr request;
  }
  [StructLayout(LayoutKind.Sequential)]
  struct PollFd {
    public int fd;
    public short events, revents;
  }

  [DllImport(so)] static extern int mv_barrier(long node, IntPtr options);
  [DllImport(so)] static extern int mv_shutdown(long node);
  [DllImport(so)] static extern IntPtr mv_status_name(int status);
  [DllImport(so)] static extern int mv_event_fd(long node, out int fd);
  [DllImport(so)] static extern int mv_poll(long node, long[] finished, ulong capacity, out ulong count, long timeout_ms);
  [DllImport(so)] static extern int mv_request_wait(long request, long timeout_ms);
  [DllImport(so, EntryPoint = "mv_table_add")]
  static extern int add_async(long table, float[] data, ulong count, int dtype, ref CallOptions options);
  [DllImport("libc.so.6")] static extern int poll(ref PollFd waiting, ulong count, int timeout_ms);

  static void Show(string label) {
    Check(mv_barrier(0, IntPtr.Zero));
    Check(mv_table_get(table, data, 3, 1, IntPtr.Zero));
    Console.WriteLine("{0}: {1} {2} {3}", label, data[0], data[1], data[2]);
    Check(mv_barrier(0, IntPtr.Zero));
  }

  static void Main() {
    Start();
    Show("after one add");

    IntPtr request = Marshal.AllocHGlobal(8);
    var options = new CallOptions { size = 32, version = 1, flags = 1, request = request };
    int fd;
    Check(mv_event_fd(0, out fd));
    Check(add_async(table, new float[] {1, 2, 3}, 3, 1, ref options));
    var waiting = new PollFd { fd = fd, events = 1 };
    bool readable = poll(ref waiting, 1, 10000) == 1;
    var finished = new long[1];
    ulong count;
    Check(mv_poll(0, finished, 1, out count, 0));
    Console.WriteLine("event fd: {0}, {1} finished", readable ? "readable" : "silent", count);
    if (finished[0] != Marshal.ReadInt64(request)) throw new Exception("another request");
    Check(mv_request_wait(finished[0], 0));
    Marshal.FreeHGlobal(request);
    Show("after two adds");

    int status = mv_table_get(table, data, 2, 1, IntPtr.Zero);
    Console.WriteLine("{0}: {1}", Marshal.PtrToStringAnsi(mv_status_name(status)), Marshal.PtrToStringAnsi(mv_last_error()));
    Check(mv_shutdown(0));
  }
}
