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
  [StructLayout(LayoutKind.Sequential)]
  struct One {  // kv_keys and kv_values
    public uint size, version;
    public ulong count;
    public IntPtr place, other;
  }
  [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
  delegate int Updater(IntPtr user, string key, long merged, long stored);

  [DllImport(so)] static extern int mv_tensor_view(IntPtr values, ulong count, int dtype, long[] shape, ulong dims, out long t);
  [DllImport(so)] static extern int mv_tensor_axpy(double alpha, long x, long y);
  [DllImport(so)] static extern int kv_create(long node, string type, out long store);
  [DllImport(so)] static extern int kv_init(long store, ref One keys, ref One values);
  [DllImport(so)] static extern int kv_push(long store, ref One keys, ref One values, ref CallOptions options);
  [DllImport(so)] static extern int kv_pull(long store, ref One keys, ref One values, IntPtr options);
  [DllImport(so)] static extern int kv_set_updater(long store, Updater updater, IntPtr user);
  [DllImport(so)] static extern int kv_free(long store);
  [DllImport("libc.so.6")] static extern int poll(ref PollFd waiting, ulong count, int timeout_ms);

  static void Show(string label) {
    Check(mv_barrier(0, IntPtr.Zero));
    Check(mv_table_get(table, data, 3, 1, IntPtr.Zero));
    Console.WriteLine("{0}: {1} {2} {3}", label, data[0], data[1], data[2]);
    Check(mv_barrier(0, IntPtr.Zero));
  }

  static IntPtr Place(long value) {
    IntPtr place = Marshal.AllocHGlobal(8);
    Marshal.WriteInt64(place, value);
    return place;
  }

  // A store whose updater is a method of this program: mv_poll() runs it.
  static void Update() {
    string updated = "no key";
    Updater updater = (user, key, merged, stored) => {
      updated = key;
      return mv_tensor_axpy(2, merged, stored);
    };
    var shared = new float[] {1, 2, 3};
    IntPtr memory = Marshal.AllocHGlobal(12);
    Marshal.Copy(shared, 0, memory, 3);
    long tensor, store;
    ulong count;
    Check(mv_tensor_view(memory, 3, 1, new long[] {3}, 1, out tensor));
    Check(kv_create(0, "local", out store));
    var keys = new One { size = 32, version = 1, count = 1, place = Place(3) };
    var tensors = new One { size = 32, version = 1, count = 1, place = Place(tensor) };
    var forget = new CallOptions { size = 32, version = 1, flags = 2 };
    Check(kv_init(store, ref keys, ref tensors));
    Check(kv_set_updater(store, updater, IntPtr.Zero));
    Check(kv_push(store, ref keys, ref tensors, ref forget));
    if (updated != "no key") throw new Exception("too early");
    Check(mv_poll(0, null, 0, out count, 0));
    Check(kv_pull(store, ref keys, ref tensors, IntPtr.Zero));
    Marshal.Copy(memory, shared, 0, 3);
    Console.WriteLine("update on key {0}: {1} {2} {3}", updated, shared[0], shared[1], shared[2]);
    Check(kv_free(store));
    GC.KeepAlive(updater);
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

    Update();

    int status = mv_table_get(table, data, 2, 1, IntPtr.Zero);
    Console.WriteLine("{0}: {1}", Marshal.PtrToStringAnsi(mv_status_name(status)), Marshal.PtrToStringAnsi(mv_last_error()));
    Check(mv_shutdown(0));
  }
}
