/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of soda-dpu-agent: one table for flags, environment, INI file and man page. */
#ifndef SODA_DPU_AGENT_OPTIONS_H
#define SODA_DPU_AGENT_OPTIONS_H

#include "daemon/options.h"
#include "pool/pool.h"
#include "registry/registry.h"

/* Whether what is only read has to be sealed, too. */
enum soda_seal_files { SODA_SEAL_FILES_REQUIRE, SODA_SEAL_FILES_ALLOW };

struct soda_dpu_options {
	struct soda_daemon_options daemon; /* first */
	char *server; /* the memory server's address, those of a pool's members, or its registry */
	/* the registry's members; set before start, and of use until then; NULL: it is a list */
	const struct soda_members *registered;
	struct soda_registry_login etcd;
	char *tenant, *key_file, *server_name;
	char *tenants; /* a file; NULL: everybody is served */
	char *policy, *policy_dir;
	char *static_rule; /* patterns, separated by commas */
	uint64_t cache_bytes, entry_bytes, static_bytes;
	uint64_t store_bytes; /* of the node's store; 0: there is none */
	uint64_t msg_bytes;   /* of ranks' inboxes; 0: no messages are routed */
	uint64_t msg_inbox, msg_transfer;
	uint32_t msg_wait_us, msg_threads;
	uint64_t move_bytes;	/* of movement's named buffers; 0: there is no movement */
	uint64_t write_budget;	/* bytes acknowledged and not on the server, of each client */
	uint64_t client_credit; /* bytes of READs under way, of each client */
	uint64_t buffers;	/* bytes of READs and WRITEs, of all clients */
	uint64_t window;	/* bytes of READs under way to a server, of all clients */
	uint32_t channels;	/* for READs, of each client; 0: by processors */
	uint32_t completers;	/* threads; 0: by processors */
	uint32_t answer;	/* enum soda_answer_by */
	uint32_t limit;		/* enum soda_prefetch_limit */
	uint32_t timeout_ms, grace_ms;
	bool base, aggregate, async;
	bool dynamic, adaptive, statics; /* caches */
	bool seal;
	char *seal_state;      /* directory; NULL: none */
	char *seal_key_file;   /* of sealed files; NULL: files to be written are refused */
	uint32_t seal_files;   /* with it: enum soda_seal_files */
	uint64_t seal_memory;  /* of versions and tags, at most */
	uint32_t seal_keep_ms; /* of a client that is away */
};

extern const struct soda_conf soda_dpu_conf;

#endif
