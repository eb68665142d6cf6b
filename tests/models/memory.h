/* A memory model weaker than SPIN's own, for models that check fences.
 *
 * SPIN's processes see each other's assignments at once, so a model on plain variables cannot detect a missing fence. Here each word has
 * one writer, which sees its newest value. The others see that value once it has left the writer's store buffer. Buffers are not FIFO:
 * stores to different words become visible in any order, as on AArch64 (on x86: in program order). fence() empties the buffer, like
 * std::atomic_thread_fence(memory_order_seq_cst). A read-modify-write acts on memory and does not flush other stores, as in the C++
 * memory model. Loads execute in program order: the C++ code has acquire loads where that matters.
 *
 *   word(name, count)   an array of words; each has the writer's value and the value that others see
 *   store(name, i, v)   a store by the writer; visible later
 *   mine(name, i)       the writer's load
 *   load(name, i)       a load by another process
 *   settle(name, i)     makes this word visible; used by Drain and by fence()
 */
#define word(name, count) byte name##_own[count]; byte name##_seen[count]
#define store(name, i, v) name##_own[i] = v
#define mine(name, i) name##_own[i]
#define load(name, i) name##_seen[i]
#define settled(name, i) (name##_own[i] == name##_seen[i])
#define settle(name, i) name##_seen[i] = name##_own[i]
#define rmw_add(name, i, v) d_step { name##_seen[i] = name##_seen[i] + v; name##_own[i] = name##_seen[i] }
