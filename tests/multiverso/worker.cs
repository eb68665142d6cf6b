// One worker of tests/multiverso, over P/Invoke.
//     worker.exe async|sync

using System;
using System.Linq;
using System.Runtime.InteropServices;

static class Multiverso {
  const string so = "libmultiverso.so";
  [DllImport(so)] public static extern void MV_Init(ref int argc, string[] argv);
  [DllImport(so)] public static extern void MV_ShutDown();
  [DllImport(so)] public static extern void MV_Barrier();
  [DllImport(so)] public static extern int MV_NumWorkers();
  [DllImport(so)] public static extern int MV_WorkerId();
  [DllImport(so)] public static extern int MV_ServerId();
  [DllImport(so)] public static extern void MV_NewArrayTable(int size, out IntPtr table);
  [DllImport(so)] public static extern void MV_GetArrayTable(IntPtr table, [Out] float[] data, int size);
  [DllImport(so)] public static extern void MV_AddArrayTable(IntPtr table, float[] data, int size);
  [DllImport(so)] public static extern void MV_AddAsyncArrayTable(IntPtr table, float[] data, int size);
  [DllImport(so)] public static extern void MV_NewMatrixTable(int rows, int cols, out IntPtr table);
  [DllImport(so)] public static extern void MV_GetMatrixTableAll(IntPtr table, [Out] float[] data, int size);
  [DllImport(so)] public static extern void MV_AddAsyncMatrixTableAll(IntPtr table, float[] data, int size);
  [DllImport(so)]
  public static extern void MV_GetMatrixTableByRows(IntPtr table, [Out] float[] data, int size, int[] ids, int count);
  [DllImport(so)]
  public static extern void MV_AddMatrixTableByRows(IntPtr table, float[] data, int size, int[] ids, int count);
  [DllImport(so)]
  public static extern void MV_AddAsyncMatrixTableByRows(IntPtr table, float[] data, int size, int[] ids, int count);
}

static class Worker {
  const int size = 1000, rows = 11, cols = 10;
  static readonly int[] some = {0, 1, 5, 10};
  static int workers;

  static float[] Floats(int count, Func<int, float> value) { return Enumerable.Range(0, count).Select(value).ToArray(); }
  static void Expect(float[] data, int count, Func<int, float> value) {
    for (int i = 0; i < count; ++i) {
      if (data[i] != value(i)) throw new Exception("element " + i + " is " + data[i] + ", not " + value(i));
    }
  }

  static void ShareAnArray() {
    IntPtr table;
    Multiverso.MV_NewArrayTable(size, out table);
    float[] ramp = Floats(size, i => i + 1), data = new float[size];
    Multiverso.MV_AddArrayTable(table, Multiverso.MV_WorkerId() == 0 ? ramp : new float[size], size);
    Multiverso.MV_Barrier();
    for (int i = 0; i < 10; ++i) {
      Multiverso.MV_GetArrayTable(table, data, size);
      Expect(data, size, k => (k + 1) * (1 + 2 * i * workers));
      Multiverso.MV_Barrier();
      Multiverso.MV_AddAsyncArrayTable(table, ramp, size);
      Multiverso.MV_AddArrayTable(table, ramp, size);
      Multiverso.MV_Barrier();
    }
  }

  static void ShareAMatrix() {
    IntPtr table;
    Multiverso.MV_NewMatrixTable(rows, cols, out table);
    Multiverso.MV_Barrier();
    int all = rows * cols, few = some.Length * cols;
    float[] everything = Floats(all, i => i), data = new float[all];
    float[] part = Floats(few, i => some[i / cols] * cols + i % cols);
    for (int i = 1; i <= 10; ++i) {
      Multiverso.MV_AddAsyncMatrixTableAll(table, everything, all);
      if (i % 2 == 0) Multiverso.MV_AddMatrixTableByRows(table, part, few, some, some.Length);
      else Multiverso.MV_AddAsyncMatrixTableByRows(table, part, few, some, some.Length);
      Multiverso.MV_Barrier();
      Multiverso.MV_GetMatrixTableAll(table, data, all);
      Expect(data, all, k => k * i * workers * (some.Contains(k / cols) ? 2 : 1));
      Multiverso.MV_GetMatrixTableByRows(table, data, few, some, some.Length);
      Expect(data, few, k => part[k] * 2 * i * workers);
      Multiverso.MV_Barrier();
    }
  }

  static int Main(string[] words) {
    string[] argv = words[0] == "sync" ? new[] {"worker", "-sync=true"} : new[] {"worker"};
    int argc = argv.Length;
    Multiverso.MV_Init(ref argc, argv);
    workers = Multiverso.MV_NumWorkers();
    if (argc != 1 || Multiverso.MV_WorkerId() >= workers || Multiverso.MV_ServerId() < 0) return 1;
    ShareAnArray();
    ShareAMatrix();
    Multiverso.MV_ShutDown();
    Console.WriteLine("as it should be");
    return 0;
  }
}
