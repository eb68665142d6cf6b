/* Memory that is weaker than SPIN's own, for models whose point is a fence.
 *
 * SPIN's processes see each other's assignments at once, so no model on plain variables misses a fence. Here each word has one writer, which
 * sees its newest value; the others see it once it has left the writer's store buffer. Buffers are not FIFO: stores to different words
 * become visible in any order, as on AArch64 (on x86 in program order). fence() empties them: it stands for
 * std::atomic_thread_fence(memory_order_seq_cst). A read-modify-write acts on memory and leaves other stores where they are, as the C++ model
 * has it. Loads are done in program order: the C++ code has acquire loads where that matters.
 *
 *   word(name, count)   an array of words, each with its writer's value and everybody else's
 *   store(name, i, v)   a store by the writer; visible later
 *   mine(name, i)       the writer's load
 *   load(name, i)       another one's load
 *   settle(name, i)     this word becomes visible: of Drain, and of fence
 */
#define word(name, count) byte name##_own[count]; byte name##_seen[count]
#define store(name, i, v) name##_own[i] = v
#define mine(name, i) name##_own[i]
#define load(name, i) name##_seen[i]
#define settled(name, i) (name##_own[i] == name##_seen[i])
#define settle(name, i) name##_seen[i] = name##_own[i]
#define rmw_add(name, i, v) d_step { name##_seen[i] = name##_seen[i] + v; name##_own[i] = name##_seen[i] }
