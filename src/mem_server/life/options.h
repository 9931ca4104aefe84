/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of soda-mem-server: one table for flags, environment, INI file and man page. */
#ifndef SODA_MEM_SERVER_OPTIONS_H
#define SODA_MEM_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf/conf.h"

struct soda_server_options {
	char *listen;	  /* addresses, separated by commas */
	char *export_dir; /* NULL: none */
	char *config;
	char *numa_node;   /* as soda_nodes_parse takes it */
	char *metrics;	   /* address of the HTTP endpoint; NULL: none */
	uint64_t capacity; /* 0: 80 % of the memory available */
	uint64_t quota;	   /* 0: none */
	uint32_t grace_ms, drain_ms, close_ms;
	uint32_t workers;
	uint32_t parent_fd; /* UINT32_MAX: none */
	uint32_t max_clients, max_regions, max_connections;
	uint32_t log_level; /* index into soda_daemon_log_levels */
	bool hugepages, allow_other, populate;
};

extern const struct soda_conf soda_server_conf;

#endif
