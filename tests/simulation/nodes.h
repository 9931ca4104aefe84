/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The three programs: how they begin, and what the simulation sees of them from outside. Each
 * function is in the object of its program (link-agent), which keeps these names and no others.
 */
#ifndef SODA_SIM_NODES_H
#define SODA_SIM_NODES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fibers.h"

/* Whether no thread has it. The first word of a mutex is who holds it (seams.c). */
static inline bool sim_lock_is_free(const pthread_mutex_t *lock)
{
	return !*(const uint32_t *)(const void *)lock;
}

/* The host agent, and its pages. */

/* One access of eight bytes, as the processor makes it. 0, or the error of the fault. */
int sim_load(const void *addr, uint64_t *value_p);
/* What is stored is the next number, which *value_p becomes. */
int sim_store(void *addr, uint64_t *value_p);
/* Handler mode: whether that is the descriptor, and what read(2) takes from it. */
bool sim_uffd_is(int fd);
ssize_t sim_uffd_read(void *out, size_t bytes);
/* A whole page as it is, if it is there; no fault. */
const void *sim_host_page(const void *addr);
/* What mincore(2) says of it: it is there, or it is a file's that has it. */
bool sim_host_has(const void *addr);
/* Only present pages can be sent. */
void sim_host_check_resident(const void *addr, size_t bytes);
/* Where the content of an address lies. */
enum { SIM_COPIES = 20, SIM_PIECES = 8 };
struct sim_places {
	/* Places of copies of its slab, up to the last that has one; 1: an object without
	   redundancy; 0: no object. */
	unsigned n;
	struct {
		enum sim_process server;
		uint16_t region;
		bool current;	/* the host reads it */
		bool refused;	/* the server does not open it again */
		unsigned piece; /* of each chunk, that it has; without erasure codes 0 */
	} copy[SIM_COPIES];
	/* In the object; with erasure codes in the regions that have that piece. */
	uint64_t offset;
	uint64_t data_at; /* where the object begins in its region: a sealed file's has a table */
	/* How many pieces of data a chunk has, the bytes of one, and in which one the address lies;
	   without erasure codes 1, a chunk's and 0. */
	unsigned pieces, piece;
	uint32_t piece_bytes;
	bool sealed;	/* by the host... */
	uint32_t block; /* ...as which block */
	/* And, or, by the agent; as the block of the region, counted from data_at. */
	bool agent_sealed;
	/* Where there are copies: nothing of the chunk is dirty or under way, so all have it. */
	bool settled;
};
struct sim_places sim_host_places(const void *addr);
/* The host tells of its copies; the slab's first byte, and which copy. */
enum sim_copies_change {
	SIM_COPY_GIVEN_UP, /* it was current */
	SIM_COPY_LAST,	   /* it was to be given up, and is the last one */
	SIM_COPY_BEGUN,
	SIM_COPY_COMPLETE,
	SIM_COPY_BROKEN_OFF /* the rebuild */
};
void sim_copies_changed(enum sim_copies_change what, const void *slab, unsigned k);
/* The chunk that the rebuild copies, or has copied last; NULL: none yet. */
char *sim_host_rebuilding(void);
/* How many slabs have fewer copies than they should. */
uint64_t sim_host_missing(void);
/*
 * The host takes the address's chunk for lost; or it is FETCHING, as which the handler has a lost
 * chunk while it fails one of its pages.
 */
bool sim_host_may_be_lost(const void *addr);
/* It is a sealed file of which an agent that has ended had acknowledged more than the server got.
 */
bool sim_host_spoiled(const void *addr);
/* Why the server that was met last does not open the object again (negative errno); 0: it has. */
int sim_host_refused(const void *addr);
/*
 * mmap() puts another mapping there: with nothing in it, or (cover) one whose every touch fails.
 * false: these are no addresses of objects.
 */
bool sim_host_map(void *addr, size_t bytes, bool cover);
/* The agent before the servers seals what is anonymous, and sealed files. */
extern bool sim_host_agent_seals;
/* It can map what a memfd has, as agents on its machine pass them. */
extern bool sim_host_shares;
/* Its kernel has UFFDIO_POISON. */
extern bool sim_host_poisons;
/* mmap() puts so many bytes of a memfd of the store there, from `at` on. */
void sim_host_share(void *addr, size_t bytes, uint64_t file, uint64_t at);
/* Pages of the memfd have gone, and with them what was mapped of them. */
void sim_host_punched(uint64_t file, uint64_t at, uint64_t bytes);
/* The state of the address's chunk, for messages. */
const char *sim_host_chunk(const void *addr);
/* The word of a chunk. */
const volatile void *sim_host_word(uint32_t chunk);
/* Print what it has of its objects. */
void sim_host_say(void);
/* Of 10,000 page operations, how many fail for want of memory. */
void sim_host_pager_fails(unsigned of_10000);
/* Of 10,000 of them, how many take milliseconds. */
void sim_host_pager_slows(unsigned of_10000);
/* What flags and credits must add up to; at any point (loose), or when all is quiet. */
void sim_host_check(bool quiet);
/* Its statistics as `soda stat` shows them; how long they are. */
size_t sim_host_stats(char *text, size_t room);
uint32_t sim_host_reconnects(void);
/* By which the next agent is to be the host's client on the first server. false: it has none. */
bool sim_host_token(uint8_t token[16]);

/* What the host believes of those it speaks with. */
struct sim_belief {
	bool up;	   /* connected, and all of the server's objects are there */
	uint32_t restarts; /* servers that it took for new ones, twice; odd: one just now */
};
struct sim_belief sim_host_believes(enum sim_process server);

/* The memory server. */

struct sim_server_settings {
	uint64_t capacity, quota;
	uint32_t grace_ms, max_clients, workers;
	bool files;   /* it exports the disk */
	bool local;   /* its clients are users of its machine, each with permissions of their own */
	bool tenants; /* it has some, of the file that trust/tenants.h names */
};

/* Each server of a pool is an object of its own, linked of the same program. */
struct sim_server {
	void (*boot)(const struct sim_server_settings *s);
	/* SIGTERM: drain, write back, end. */
	void (*end)(void);
	/* Whether it is this instance, and has not forgotten the client. */
	bool (*knows)(uint64_t instance, uint64_t client);
	/* The client has a token by which the next agent could be it. */
	bool (*has_token)(uint64_t client);
	/* A page of the client's region; NULL: it has no such region. */
	const void *(*page)(uint64_t client, uint16_t region, uint64_t offset);
	uint64_t (*used)(void);
	/* What it has is to move to others; or may stay (`soda pool drain`). */
	void (*drain)(bool away);
	/* SIGHUP: it reads the file of its tenants again. */
	void (*reload)(void);
	/*
	 * What is charged to one of its tenants; no point.  quota: the most that it ever had, or 0:
	 * what accounts must add up to is looked at, too.
	 */
	uint64_t (*used_by)(const char *tenant, uint64_t quota);
};

extern const struct sim_server sim_server_node, sim_server2_node, sim_server3_node,
	sim_server4_node, sim_server5_node, sim_server6_node, sim_server7_node;
const struct sim_server *sim_server(enum sim_process p);

/* The DPU agent. */

struct soda_source_ops;

struct sim_agent_settings {
	uint64_t write_budget, client_credit, window, cache_bytes, static_bytes;
	uint32_t grace_ms, timeout_ms, workers, completers, channels, limit;
	bool base, aggregate, async, dynamic;
	const char *servers; /* as its --server */
	const char *policy;
	bool seal;
	const char *seal_key;	/* of files, which are sealed then */
	const char *seal_state; /* where its keys stay when it is gone; NULL: nowhere */
	uint64_t seal_keep_ms;
	const char *tenants;		      /* the file of its programs; NULL: all may connect */
	const char *key_file;		      /* who it is to the servers; NULL: nobody */
	uint64_t store;			      /* bytes for the node's store; 0: none */
	uint64_t move;			      /* bytes for movement; 0: none */
	const struct soda_source_ops *source; /* how it reads programs' memory then */
};

void sim_agent_boot(const struct sim_agent_settings *s);
void sim_agent_end(void);
void sim_agent_reload(void);
/* What is charged to one of its tenants. */
uint64_t sim_agent_used(const char *tenant);
/* What its movement has; no point. False: it changes just now, or the agent ends. */
struct sim_agent_movement {
	uint64_t reserved, named, list_bytes; /* named: bytes of the buffers that have a name */
	unsigned buffers, rings;
	bool idle; /* no client has a turn, nothing is stored, no getter has one's ticket */
};
bool sim_agent_movement(struct sim_agent_movement *out);
/* What the states, lists and accounts of its store must add up to. */
void sim_agent_check(void);
/* How often its store had to evict what a thread held; false: not known just now. */
bool sim_agent_forced(uint64_t *forced_p);

/* Memory of the store; memfd.c. */

/* The kernel's number of a file of the store; 0: the descriptor is none of those. */
int sim_memfd_create(const char *name, unsigned flags);
ssize_t sim_memfd_write(int fd, const void *data, size_t bytes, off_t at);
int sim_memfd_punch(int fd, int mode, off_t at, off_t bytes);
uint64_t sim_memfd_file(int fd);
/* Whether the file has the page that is mapped there, whoever else has it mapped. */
bool sim_memfd_has(const void *addr);

#endif
