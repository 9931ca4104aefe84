/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options that every daemon has: their values, and their rows for the daemon's table, which the
 * daemon puts where it wants them in its --help.  ENV: the beginning of its environment variables'
 * names ("SODA_DPU_"); HELP: a sentence that differs from daemon to daemon.
 */
#ifndef SODA_DAEMON_OPTIONS_H
#define SODA_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf/conf.h"
#include "base/log.h"
#include "trust/tls.h"

/* The first member of each daemon's own options, named `daemon`. */
struct soda_daemon_options {
	char *listen;	 /* addresses, separated by commas */
	char *numa_node; /* as soda_nodes_parse takes it */
	char *metrics;	 /* address of the HTTP endpoint; NULL, "off" or empty: none */
	char *config;
	uint32_t workers, max_clients, max_connections;
	uint32_t drain_ms;
	uint32_t parent_fd; /* UINT32_MAX: none */
	uint32_t log_level; /* counted from SODA_LOG_LVL_ERROR */
	uint32_t tls;	    /* enum soda_tls_mode */
	char *certificates; /* a directory (trust/tls.h), or NULL */
	bool allow_other;
};

#define SODA_DAEMON_ROW(TYPE, NAME, ENV, FIELD)                                                    \
	.name = NAME, .env = ENV, .type = SODA_OPT_##TYPE,                                         \
	.offset = offsetof(struct soda_daemon_options, FIELD)

#define SODA_DAEMON_LISTEN(ENV, DEFAULT, HELP)                                                     \
	{                                                                                          \
		SODA_DAEMON_ROW(LIST, "listen", ENV "LISTEN", listen),                             \
			.letter = 'l', .arg = "ADDRESS", .def = DEFAULT, .help = HELP              \
	}

#define SODA_DAEMON_WORKERS(ENV, HELP)                                                             \
	{                                                                                          \
		SODA_DAEMON_ROW(UINT, "workers", ENV "WORKERS", workers),                          \
			.letter = 'w', .arg = "N", .def = "0", .max = 256, .help = HELP            \
	}

#define SODA_DAEMON_NUMA_NODE(ENV, HELP)                                                           \
	{                                                                                          \
		SODA_DAEMON_ROW(STRING, "numa-node", ENV "NUMA_NODE", numa_node),                  \
			.arg = "NODES", .def = "off", .help = HELP                                 \
	}

#define SODA_DAEMON_DRAIN(ENV)                                                                     \
	{                                                                                          \
		SODA_DAEMON_ROW(TIME_MS, "drain", ENV "DRAIN", drain_ms),                          \
			.arg = "TIME", .def = "30s",                                               \
			.help = "How long clients may finish after SIGTERM."                       \
	}

#define SODA_DAEMON_ALLOW_OTHER(ENV, HELP)                                                         \
	{                                                                                          \
		SODA_DAEMON_ROW(BOOL, "allow-other", ENV "ALLOW_OTHER", allow_other),              \
			.def = "no",                                                               \
			.help = "Serve local clients (shm) of every user. Without it: " HELP       \
	}

#define SODA_DAEMON_MAX_CLIENTS(ENV)                                                               \
	{                                                                                          \
		SODA_DAEMON_ROW(UINT, "max-clients", ENV "MAX_CLIENTS", max_clients),              \
			.arg = "N", .def = "1024", .min = 1, .max = 65536,                         \
			.help = "Most clients at a time. Half of them are kept for tenants, in "   \
				"equal parts."                                                     \
	}

#define SODA_DAEMON_MAX_CONNECTIONS(ENV)                                                           \
	{                                                                                          \
		SODA_DAEMON_ROW(UINT, "max-connections", ENV "MAX_CONNECTIONS", max_connections),  \
			.arg = "N", .def = "4096", .min = 1, .max = 1u << 20,                      \
			.help = "Most connections at a time, of each address. Half of them are "   \
				"kept for tenants, in equal parts, and an eighth for clients "     \
				"that are known."                                                  \
	}

#define SODA_DAEMON_PARENT_FD(HELP)                                                                \
	{                                                                                          \
		SODA_DAEMON_ROW(UINT, "parent-fd", NULL, parent_fd),                               \
			.arg = "FD", .def = "off", .max = 1u << 20, .allow_off = 1,                \
			.help = "End without a drain at end-of-file on this descriptor: " HELP     \
	}

/* HELP: what beside the listening side goes by them. */
#define SODA_DAEMON_TLS(ENV, HELP)                                                                 \
	{                                                                                          \
		SODA_DAEMON_ROW(CHOICE, "tls", ENV "TLS", tls),                                    \
			.arg = "MODE", .def = "off", .choices = soda_tls_mode_names,               \
			.help = "TLS 1.3 for control connections on tcp, by the tenants' keys or " \
				"a "                                                               \
				"certificate. on: clients may use it. require: they must, and "    \
				"data connections from other machines must be by the kernel's "    \
				"TLS (modprobe tls), or say that all is sealed." HELP              \
	}

#define SODA_DAEMON_TLS_CERTIFICATES(ENV, HELP)                                                    \
	{                                                                                          \
		SODA_DAEMON_ROW(STRING, "tls-certificates", ENV "TLS_CERTIFICATES", certificates), \
			.arg = "DIR",                                                              \
			.help = "Directory of cert.pem, the server's certificate and those above " \
				"it, and key.pem, its key, which nobody else may read; with "      \
				"--tls "                                                           \
				"also --metrics is https then. Read again at SIGHUP." HELP         \
	}

#define SODA_DAEMON_METRICS(ENV)                                                                   \
	{                                                                                          \
		SODA_DAEMON_ROW(STRING, "metrics", ENV "METRICS", metrics),                        \
			.arg = "ADDRESS",                                                          \
			.help = "Serve the statistics to Prometheus at http://ADDRESS/metrics, "   \
				"and /healthz:"                                                    \
				" HOST:PORT, or PORT, which is 127.0.0.1 only; port 0 picks a "    \
				"free one. Every"                                                  \
				" program that can connect can read them. off, or nothing: none, " \
				"the default."                                                     \
	}

/* SECTION: of the INI file, the program's name. */
#define SODA_DAEMON_CONFIG(ENV, SECTION)                                                           \
	{                                                                                          \
		SODA_DAEMON_ROW(STRING, "config", ENV "CONFIG", config),                           \
			.arg = "FILE",                                                             \
			.help = "INI file with any of these options as 'key = value', below "      \
				"[" SECTION                                                        \
				"] or without a section. Flags and environment outrank it."        \
	}

#define SODA_DAEMON_LOG_LEVEL                                                                      \
	{                                                                                          \
		SODA_DAEMON_ROW(CHOICE, "log-level", "SODA_LOG", log_level),                       \
			.arg = "LEVEL", .def = "info",                                             \
			.choices = &soda_log_level_names[SODA_LOG_LVL_ERROR],                      \
			.help = "Least severe messages that are logged, on standard error."        \
	}

/* For each daemon's man page. */
#define SODA_DAEMON_MAN_ENVIRONMENT                                                                \
	".SH ENVIRONMENT\n.TP\n.B NOTIFY_SOCKET\nWhere the service manager wants to be told of"    \
	" readiness; see\n.BR sd_notify (3).\n"

#endif
