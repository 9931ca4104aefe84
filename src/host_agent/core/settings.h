/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's options: one table of them, and their values: the default, which the environment
 * overrides, which struct soda_config overrides.
 */
#ifndef SODA_HOST_SETTINGS_H
#define SODA_HOST_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "soda.h"
#include "base/conf/conf.h"
#include "transport/api/transport.h"

enum soda_mechanisms { SODA_MECHANISMS_AUTO, SODA_MECHANISMS_COPY, SODA_MECHANISMS_OWN };

enum soda_redundancy {
	SODA_REDUNDANCY_NONE,
	SODA_REDUNDANCY_MIRROR,
	SODA_REDUNDANCY_CODES, /* this and what follows: chunks in pieces, with parity or without */
	SODA_REDUNDANCIES = SODA_REDUNDANCY_CODES + 9,
};

/* By enum soda_redundancy: on how many servers a slab lies, and how many pieces of data a chunk
 * has. */
struct soda_code {
	const char *name;
	uint8_t members, pieces;
};
extern const struct soda_code soda_codes[SODA_REDUNDANCIES];
/* Whether one of the members may end with nothing lost. */
static inline bool soda_code_survives(const struct soda_code *code)
{
	return code->members > (code->pieces ? code->pieces : 1);
}
/*
 * Whether so many servers, chunks of that size and this build give it.  0; -EINVAL: a chunk is too
 * small; -ENOTSUP: too few servers, or no ISA-L; *err says it, and begins with `what`.
 */
int soda_code_check(const struct soda_code *code, uint32_t servers, uint64_t chunk_bytes,
		    const char *what, struct soda_conf_error *err);

struct soda_settings {
	char *server; /* address of the memory server, or of several, or of the agent; NULL: a
			 private server */
	char *dpu;    /* address of the agent as given, or NULL; `server` is the same then */
	char *buffer;
	char *evict;
	char *server_program; /* path of the private server's program */
	char *trace;	      /* NULL: none */
	char *numa_node;
	uint32_t tls;			       /* enum soda_tls_mode */
	char *certificates;		       /* a directory; NULL: keys are used */
	char *tenant, *key_file, *server_name; /* NULL: as soda_identity_load() says */
	int node;			       /* numa_node, for soda_node_choose */
	uint64_t trace_limit;		       /* bytes */
	uint64_t chunk_bytes, slab_bytes, agent_keep;
	uint64_t rebuild_rate; /* bytes a second */
	uint32_t mode;	       /* enum soda_mode */
	uint32_t mechanisms;   /* enum soda_mechanisms */
	uint32_t on_error;     /* enum soda_on_error */
	uint32_t redundancy;   /* enum soda_redundancy */
	bool strict;	       /* soda_sync fails while copies are missing */
	uint32_t threads;
	bool seal;	     /* objects are sealed */
	char *seal_key_file; /* of sealed files; NULL: there are none */
	bool alone; /* `server` names one, or none: files lie there, also when others come */
	_Atomic uint32_t servers; /* how many `server` names, and that came later; 0 counts as 1 */
	uint32_t evict_high_pct, evict_low_pct;
	uint32_t prefetch_chunks; /* 0: off */
	uint32_t poll_us;	  /* 0: off */
	uint32_t connect_timeout_ms, fault_timeout_ms;
	uint32_t log_level;
	void (*log)(int level, const char *message, void *log_arg);
	void *log_arg;

	/* derived from `buffer` */
	uint64_t buffer_bytes;		 /* 0: the fraction counts */
	uint32_t buffer_num, buffer_den; /* of the objects' bytes */
};

extern const struct soda_conf soda_settings_conf;

/* cfg may be NULL. 0, -EINVAL with the option and what is expected in why. */
int soda_settings_load(const struct soda_config *cfg, struct soda_settings *s,
		       struct soda_why *why);
/*
 * Whether there are as many servers as the redundancy needs. 0, -EINVAL with *why.  Where `server`
 * is one address soda_settings_load() leaves that to who meets it.
 */
int soda_settings_check_servers(const struct soda_settings *s, struct soda_why *why);
/* Chunks that a buffer must have for `threads` threads: staging included, and what seals has
 * `sealing`. */
int64_t soda_settings_minimum(const struct soda_settings *s, uint32_t threads, int64_t sealing);
/* Whether a buffer whose size is given is large enough. 0, -EINVAL with *why. */
int soda_settings_check_buffer(const struct soda_settings *s, int64_t sealing,
			       struct soda_why *why);
void soda_settings_free(struct soda_settings *s);

#endif
