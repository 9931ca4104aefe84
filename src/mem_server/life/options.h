/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of soda-mem-server: one table for flags, environment, INI file and man page. */
#ifndef SODA_MEM_SERVER_OPTIONS_H
#define SODA_MEM_SERVER_OPTIONS_H

#include "daemon/options.h"

struct soda_server_options {
	struct soda_daemon_options daemon; /* first */
	char *export_dir;		   /* NULL: none */
	uint64_t capacity;		   /* 0: 80 % of the memory available */
	uint64_t quota;			   /* 0: none */
	uint32_t grace_ms, close_ms;
	uint32_t max_regions;
	bool hugepages, populate;
};

extern const struct soda_conf soda_server_conf;

#endif
