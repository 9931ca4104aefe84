/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole DPU agent between fakes: link it instead of the transports.
 *
 *   programs        struct program: what a host agent says to the agent, through soda_dpu_service,
 *                   and what it is told
 *   the agent       all of src/dpu_agent but main.c, with its threads
 *   memory server   clients with ids, secrets, epochs and regions, in memory; it takes WRITEs in
 *                   their order, and can be cut off, stand still, forget, and start anew
 *
 * Every wait ends: what has not come within LONG_MS fails the test.
 */
#ifndef SODA_TESTS_FAKE_UPSTREAM_H
#define SODA_TESTS_FAKE_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/life/agent.h"
#include "wire/wire.h"

enum { PAGE = 4096, LONG_MS = 20000 };

/* The server and the network; change it through the functions, or before the agent runs. */
extern struct fake_upstream {
	int refuse;		/* error of connecting, 0: none */
	uint64_t refuse_client; /* of this client only; 0: of all */
	int refuse_data;	/* error of connecting for data, of the same */
	unsigned most_clients;	/* more are refused with -EBUSY; 0: any number */
	unsigned refusals;	/* so many are left; 0: without end */
	uint64_t stall;		/* connecting does not end for this client (UINT64_MAX: for all) */
	uint64_t stall_not;	/* then this one does */
	bool hold_writes, hold_reads; /* their answers */
	uint64_t hold_client;	      /* of this client alone; 0: of all; calls', too */
	const char *hold_at;	      /* of the server at this address alone; NULL: of all */
	bool hold_bye;		      /* a BYE is not answered */
	bool hold_close;	      /* nor a CLOSE, and fails when it is let go */
	bool hold_sent;		      /* answers with data are not sent until the connection ends */
	int refuse_writes;	      /* the status of WRITEs */
	int refuse_publish;	      /* of PUBLISH calls; 0: none */
	bool direct;		      /* regions opened from now on are mapped, as on shm */
	uint64_t instance;
	uint32_t agent; /* soda_wire_welcome.agent: the server is an agent, too */
	uint8_t rule;	/* the answer to NAME; 0: an empty one */
	/* what happened */
	unsigned agents;  /* that the last HELLO has passed */
	char address[64]; /* that the last connection was made to */
	unsigned connects, refused, byes, closes, writes, stalled;
	unsigned ended; /* connections that were closed */
	unsigned written_bytes;
	unsigned published;	     /* PUBLISH calls that were done */
	unsigned written_at_publish; /* `writes` at the last of them */
} fake_upstream;

/* Options that suit most tests; the agent reads some of them while it runs. */
extern struct soda_dpu_options fake_options;
extern struct soda_dpu fake_dpu;

/* All as new, and the agent started with fake_options. */
void fake_up(void);
/* Change fake_options first where it has to be known before the start. */
void fake_options_reset(void);
/* The agent ends; no program is connected. How many sessions lost data. */
unsigned fake_down(void);
unsigned fake_down_within(uint32_t drain_ms); /* the same, with so much patience */

/* Under the fake's lock. */
#define FAKE_SET(field, value)                                                                     \
	do {                                                                                       \
		fake_lock_net();                                                                   \
		fake_upstream.field = (value);                                                     \
		fake_unlock_net();                                                                 \
	} while (0)
void fake_lock_net(void);
void fake_unlock_net(void);
uint64_t fake_get(const unsigned *counter);

/* Every connection, or those of one client, ends; new ones are refused with err (0: not). */
void fake_cut(uint64_t client, int err);
void fake_mend(void);
/* Refused no more, but connecting does not end. */
void fake_mend_but_stall(uint64_t client);
/* The grace time of the client is over; 0: of all, as the server has started anew. */
void fake_forget(uint64_t client);
bool fake_knows(uint64_t client);
/* How many the server has. */
unsigned fake_clients(void);
/* The first word of a page of a region, on the server. */
uint64_t fake_word(uint64_t client, uint16_t region, uint64_t page);
/* The server changes a bit of it. */
void fake_change(uint64_t client, uint16_t region, uint64_t page);

enum { FAKE_READ_PAGES = 8 };

/* A program. */
struct program {
	uint64_t id, secret, epoch, instance;
	uint32_t agent;
	bool known;	    /* of the last welcome, as the host agent understands it */
	bool agent_changed; /* by the last welcome: unacknowledged WRITEs are lost */
	struct soda_peer *control, *data;
	void *client;
	struct soda_why why;
	unsigned agents;      /* it is such a row of agents that passes the program on */
	bool keep;	      /* the agent is to keep the data of its WRITEs */
	uint16_t member;      /* the tag of the member of the pool that it means */
	bool local;	      /* by a UNIX socket */
	uint32_t chunk_bytes; /* 0: 64 KiB */
	int shared_fd;	      /* the agent's, that the last call was answered with; or -1 */
	const uint8_t *reply; /* of the last call of this thread */
	size_t reply_bytes;
};

/* HELLO with the next epoch, and a data connection. 0 or the agent's refusal. */
int program_hello(struct program *p);
/* The same until it succeeds, as the keeper of a host agent does; older connections go first. */
void program_return(struct program *p);
/* Its connections end, and are gone. */
void program_vanish(struct program *p);
/* Whether the agent has closed its connections, or does so within LONG_MS. */
bool program_is_expelled(struct program *p);
int program_open(struct program *p, uint16_t region, uint64_t pages, uint32_t flags);
int program_call(struct program *p, enum soda_msg type, const void *body, size_t bytes);
int program_sync(struct program *p, uint16_t region);
int program_close(struct program *p, uint16_t region);
/* WRITE a page whose words are `value`; doorbell: tell that there are no more. */
struct fake_rq *program_post(struct program *p, uint16_t region, uint64_t page, uint64_t value,
			     bool doorbell);
/* A WRITE of what `from` has written there, and the agent has kept; secret: as from's. */
struct fake_rq *program_post_again(struct program *p, uint16_t region, uint64_t page,
				   const struct program *from, uint64_t secret);
/* A WRITE of parity, of what those of the code have written there, and the agent has kept. */
struct fake_rq *program_post_coded(struct program *p, uint16_t region, uint64_t page,
				   const struct soda_wire_code *code);
struct fake_rq *program_post_read(struct program *p, uint16_t region, uint64_t page);
/* n READs of a page each, neighbours, with one doorbell, to memory of the agent's. */
void program_post_reads(struct program *p, uint16_t region, uint64_t page, struct fake_rq **out,
			unsigned n);
/* Of at most FAKE_READ_PAGES pages in one. */
struct fake_rq *program_post_wide_read(struct program *p, uint16_t region, uint64_t page,
				       uint32_t pages);
/* Its answer: 0 or the status; fails the test where none comes. */
int program_await(struct fake_rq *rq);
/* The word that a READ brought. */
uint64_t program_got(const struct fake_rq *rq);
/* The same of its i-th page. */
uint64_t program_got_page(const struct fake_rq *rq, uint32_t i);
bool program_answered(const struct fake_rq *rq);
/* Both, and 0 expected. */
void program_write(struct program *p, uint16_t region, uint64_t page, uint64_t value);
uint64_t program_read(struct program *p, uint16_t region, uint64_t page);

/* Called at the first answer of a WRITE from `value` on, by the thread that gives it; NULL: none */
extern void (*fake_on_answer)(uint64_t value);

/* Called before a connection of the client is closed, by the thread that does; NULL: none. */
extern void (*fake_on_close)(uint64_t client);

/* Sessions of the agent; whether somebody is busy with the first one, and how many times. */
unsigned fake_sessions(void);
unsigned fake_busy(uint64_t client);

#define AWAIT(condition)                                                                           \
	do {                                                                                       \
		int looks_ = LONG_MS;                                                              \
		while (!(condition) && looks_--)                                                   \
			fake_pause();                                                              \
		assert_true(condition);                                                            \
	} while (0)
void fake_pause(void); /* a millisecond */

#endif
