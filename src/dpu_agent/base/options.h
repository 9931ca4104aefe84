/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of soda-dpu-agent: one table for flags, environment, INI file and man page. */
#ifndef SODA_DPU_AGENT_OPTIONS_H
#define SODA_DPU_AGENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf/conf.h"

struct soda_dpu_options {
	char *listen;	 /* addresses, separated by commas */
	char *numa_node; /* as soda_nodes_parse takes it */
	char *server;	 /* the memory server's */
	char *config;
	char *metrics; /* address of the HTTP endpoint; NULL: none */
	char *policy, *policy_dir;
	char *static_rule; /* patterns, separated by commas */
	uint64_t cache_bytes, entry_bytes, static_bytes;
	uint64_t write_budget;	/* accepted and not yet written, a client */
	uint64_t client_credit; /* of READs under way, a client */
	uint64_t buffers;	/* of both, of all clients */
	uint64_t window;	/* of READs under way to the server, of all clients */
	uint32_t channels;	/* for READs, a client; 0: by processors */
	uint32_t completers;	/* threads; 0: by processors */
	uint32_t workers;
	uint32_t answer; /* enum soda_answer_by */
	uint32_t timeout_ms, drain_ms, grace_ms;
	uint32_t max_clients, max_connections;
	uint32_t parent_fd; /* UINT32_MAX: none */
	uint32_t log_level; /* index into soda_daemon_log_levels */
	bool base, aggregate, async, allow_other;
	bool dynamic, adaptive, statics; /* caches */
};

extern const struct soda_conf soda_dpu_conf;

#endif
