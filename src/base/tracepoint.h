/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static tracepoints (USDT): places in libsoda and the daemons that bpftrace, perf and SystemTap
 * find by name in the file, as soda:NAME, and that docs/tracing.md lists for users.  One macro
 * each.  A tracepoint is a nop and a note in the ELF file, which says where each argument is at
 * that moment: a register, a constant, a place in memory.  So arguments are what the function has
 * at hand anyway, and none has an effect; only where a fault fails is its time computed for one.
 *
 * Without <sys/sdt.h> (systemtap-sdt-dev) at build time there are no tracepoints, and no code;
 * nor in the simulation, which links three programs into one, where the linker keeps one's notes.
 */
#ifndef SODA_TRACEPOINT_H
#define SODA_TRACEPOINT_H

#if defined(SODA_HAVE_SDT) && !defined(SODA_SIMULATION)
#include <sys/sdt.h>
#define SODA_TRACEPOINT1(name, a) DTRACE_PROBE1(soda, name, a)
#define SODA_TRACEPOINT2(name, a, b) DTRACE_PROBE2(soda, name, a, b)
#define SODA_TRACEPOINT3(name, a, b, c) DTRACE_PROBE3(soda, name, a, b, c)
#define SODA_TRACEPOINT5(name, a, b, c, d, e) DTRACE_PROBE5(soda, name, a, b, c, d, e)
#else
#define SODA_TRACEPOINT1(name, a) ((void)sizeof(a))
#define SODA_TRACEPOINT2(name, a, b) ((void)sizeof(a), (void)sizeof(b))
#define SODA_TRACEPOINT3(name, a, b, c) ((void)sizeof(a), (void)sizeof(b), (void)sizeof(c))
#define SODA_TRACEPOINT5(name, a, b, c, d, e)                                                      \
	((void)sizeof(a), (void)sizeof(b), (void)sizeof(c), (void)sizeof(d), (void)sizeof(e))
#endif

/* Of libsoda. chunk: its number in the chunk table; error: 0 or a negative errno. */
#define SODA_TP_FAULT(chunk, store) SODA_TRACEPOINT2(fault, chunk, store)
#define SODA_TP_FAULT_DONE(chunk, error, ns) SODA_TRACEPOINT3(fault_done, chunk, error, ns)
#define SODA_TP_FETCH(chunk, bytes, ahead) SODA_TRACEPOINT3(fetch, chunk, bytes, ahead)
#define SODA_TP_INSTALL(chunk, dirty) SODA_TRACEPOINT2(install, chunk, dirty)
#define SODA_TP_EVICT(chunk) SODA_TRACEPOINT1(evict, chunk)
#define SODA_TP_WRITEBACK(chunk, blocks) SODA_TRACEPOINT2(writeback, chunk, blocks)
#define SODA_TP_WRITEBACK_DONE(chunk, bytes, failed)                                               \
	SODA_TRACEPOINT3(writeback_done, chunk, bytes, failed)
#define SODA_TP_SYNC(chunk, chunks) SODA_TRACEPOINT2(sync, chunk, chunks)
#define SODA_TP_SYNC_DONE(chunk, error) SODA_TRACEPOINT2(sync_done, chunk, error)

/* Of libsoda, and of the DPU agent for each of its clients. address: a string. */
#define SODA_TP_DISCONNECT(address, error) SODA_TRACEPOINT2(disconnect, address, error)
#define SODA_TP_RECONNECT(address, epoch, error) SODA_TRACEPOINT3(reconnect, address, epoch, error)

/* Of the DPU agent. id: of the request, until its answer. */
#define SODA_TP_REQUEST(id, region, offset, bytes, write)                                          \
	SODA_TRACEPOINT5(request, id, region, offset, bytes, write)
#define SODA_TP_ANSWER(id, error) SODA_TRACEPOINT2(answer, id, error)

/* Of the memory server: a READ or WRITE that comes as a message. */
#define SODA_TP_ACCESS(client, region, page, bytes, write)                                         \
	SODA_TRACEPOINT5(access, client, region, page, bytes, write)

#endif
