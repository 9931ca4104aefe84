/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/settings.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/numa/numa_node.h"
#include "host_agent/core/thread.h"
#include "pool/erasure.h"
#include "pool/pool.h"
#include "trust/tls.h"
#include "wire/proof.h"
#include "wire/wire.h"

static const char *const modes[] = { "auto", "inline", "handler", NULL };
static const char *const mechanisms[] = { "auto", "copy", "own", NULL };
static const char *const on_errors[] = { "default", "sigbus", "abort", "wait", NULL };
static const char *const redundancies[] = { "none",	"mirror:2", "ec:2+1",	"ec:2+2",
					    "ec:4+1",	"ec:4+2",   "ec:8+1",	"ec:8+2",
					    "stripe:2", "stripe:4", "stripe:8", NULL };

const struct soda_code soda_codes[SODA_REDUNDANCIES] = {
	{ "none", 1, 0 },     { "mirror:2", SODA_COPIES, 0 },
	{ "ec:2+1", 3, 2 },   { "ec:2+2", 4, 2 },
	{ "ec:4+1", 5, 4 },   { "ec:4+2", 6, 4 },
	{ "ec:8+1", 9, 8 },   { "ec:8+2", 10, 8 },
	{ "stripe:2", 2, 2 }, { "stripe:4", 4, 4 },
	{ "stripe:8", 8, 8 },
};
static const char *const levels[] = { "off", "error", "warning", "info", "debug", NULL };

#define AT(field) offsetof(struct soda_settings, field)

static const struct soda_option options[] = {
	{ "server", 0, "SODA_SERVER", SODA_OPT_STRING, AT(server), "ADDRESS[,...]", NULL, 0,
	  SODA_MEMBERS_TEXT_MAX, NULL, 0,
	  "The memory server: tcp://HOST:PORT, verbs://HOST:PORT (RDMA), or shm:///PATH on the "
	  "same machine; or several of them with commas between: a pool, over which objects are "
	  "spread. Default: a private server, which ends with the process." },
	{ "dpu", 0, "SODA_DPU", SODA_OPT_STRING, AT(dpu), "ADDRESS", NULL, 0, SODA_ADDRESS_MAX,
	  NULL, 0,
	  "A DPU agent, which knows its memory server, instead of a server: tcp://HOST:PORT, or "
	  "unix:///PATH on the same machine." },
	{ "tenant", 0, "SODA_TENANT", SODA_OPT_STRING, AT(tenant), "NAME", NULL, 0,
	  SODA_TENANT_NAME_MAX, NULL, 0,
	  "Whose tenant the program is, to a server with tenants. Default: the one in the key "
	  "file." },
	{ "key-file", 0, "SODA_KEY_FILE", SODA_OPT_STRING, AT(key_file), "FILE", NULL, 0, 0, NULL,
	  0,
	  "The tenant's key, which soda-tenant-add(1) made: with it the program uses only a server "
	  "that proves itself, and proves the tenant to it. Nobody else may read the file." },
	{ "server-name", 0, "SODA_SERVER_NAME", SODA_OPT_STRING, AT(server_name), "NAME", NULL, 0,
	  SODA_WIRE_TENANT_MAX, NULL, 0,
	  "The name of the server that is meant, as its tenants file has it. Default: the host in "
	  "its address, localhost for shm." },
	{ "tls", 0, "SODA_TLS", SODA_OPT_CHOICE, AT(tls), "MODE", "off", 0, 0, soda_tls_mode_names,
	  0,
	  "TLS 1.3 for control connections on tcp, by the tenant's key or a certificate. on: no "
	  "server without it is used. require: and data connections to another machine are by "
	  "TLS, too, which the kernels carry, or are not made, unless all is sealed (SODA_SEAL)." },
	{ "tls-certificates", 0, "SODA_TLS_CERTIFICATES", SODA_OPT_STRING, AT(certificates), "DIR",
	  NULL, 0, 0, NULL, 0,
	  "Directory of ca.pem, whose certificates are believed of a server, for its name. "
	  "Default: the key that is given is used." },
	{ "seal", 0, "SODA_SEAL", SODA_OPT_BOOL, AT(seal), NULL, "no", 0, 0, NULL, 0,
	  "Encrypt and authenticate objects where they leave the process: servers, agents and the "
	  "network see no content, and cannot change it unnoticed. Needs OpenSSL. Files are sealed "
	  "where they lie, too, with the key of SODA_SEAL_KEY_FILE; PRIVATE ones and published "
	  "objects are refused." },
	{ "seal-key-file", 0, "SODA_SEAL_KEY_FILE", SODA_OPT_STRING, AT(seal_key_file), "FILE",
	  NULL, 0, 0, NULL, 0,
	  "The key of sealed files, which soda-seal-key(1) makes: what was sealed with it is read "
	  "with it alone. Nobody else may read the file." },
	{ "buffer", 0, "SODA_BUFFER", SODA_OPT_STRING, AT(buffer), "SIZE", NULL, 0, 0, NULL, 0,
	  "The page buffer: bytes (512M), or a fraction of what is allocated (1/3). A hard limit "
	  "on resident FAM and staging. Default: 1/3, at least 16 MiB." },
	{ "chunk", 0, "SODA_CHUNK", SODA_OPT_SIZE, AT(chunk_bytes), "SIZE", "64K", 4096, 2u << 20,
	  NULL, 0, "Unit of fetching and eviction: a power of two from 4K to 2M." },
	{ "slab", 0, "SODA_SLAB", SODA_OPT_SIZE, AT(slab_bytes), "SIZE", "64M", 2u << 20,
	  1ull << 40, NULL, 0,
	  "On a pool of servers: objects are cut into slabs of this size, a multiple of 2M; "
	  "each lies on one server." },
	{ "redundancy", 0, "SODA_REDUNDANCY", SODA_OPT_CHOICE, AT(redundancy), "KIND", "none", 0, 0,
	  redundancies, 0,
	  "On a pool of servers: on how many of them each slab lies. none: on one; mirror:2: on "
	  "two, and nothing is lost when one of them ends; ec:K+M: in K pieces and M of parity, "
	  "each on a server of its own, and nothing is lost when M of them end; stripe:K: in K "
	  "pieces without parity, so that a chunk comes from K servers at once, and is lost with "
	  "any of them." },
	{ "rebuild-rate", 0, "SODA_REBUILD_RATE", SODA_OPT_SIZE, AT(rebuild_rate), "SIZE", "128M",
	  1u << 20, 1ull << 40, NULL, 0,
	  "With redundancy: how many bytes a second are copied at most to have all copies "
	  "again." },
	{ "strict", 0, "SODA_STRICT", SODA_OPT_BOOL, AT(strict), NULL, "off", 0, 0, NULL, 0,
	  "With redundancy: soda_sync() fails with EIO while what it synchronises has fewer copies "
	  "than it should. Default: it succeeds with one copy." },
	{ "agent-keep", 0, "SODA_AGENT_KEEP", SODA_OPT_SIZE, AT(agent_keep), "SIZE", "16M", 0,
	  1ull << 40, NULL, 0,
	  "What a DPU agent has acknowledged stays in memory until its server has it, so that the "
	  "agent's death loses nothing: this much beside the buffer, at most a quarter of the "
	  "buffer; what is more stays in the buffer." },
	{ "mode", 0, "SODA_MODE", SODA_OPT_CHOICE, AT(mode), "MODE", "auto", 0, 0, modes, 0,
	  "Who serves a page fault: the faulting thread (inline, which is auto) or threads of the "
	  "library (handler)." },
	{ "evict", 0, "SODA_EVICT", SODA_OPT_STRING, AT(evict), "POLICY", "ghost", 0, 0, NULL, 0,
	  "Replacement policy: ghost, or fifo." },
	{ "mechanisms", 0, "SODA_MECHANISMS", SODA_OPT_CHOICE, AT(mechanisms), "SET", "auto", 0, 0,
	  mechanisms, 0,
	  "auto: what the kernel has, and a DPU agent on this machine may install pages; own: it "
	  "may not; copy: nor is anything used that Linux 5.7 has not." },
	{ "on-error", 0, "SODA_ON_ERROR", SODA_OPT_CHOICE, AT(on_error), "ACTION", "sigbus", 0, 0,
	  on_errors, 0, "What a page that cannot be had does: sigbus, abort, or wait." },
	{ "threads", 0, "SODA_THREADS", SODA_OPT_UINT, AT(threads), "N", NULL, 1, 1024, NULL, 0,
	  "Application threads that touch FAM at once; sizes the smallest buffer and the pool of "
	  "connections. Default: the processors that the process may run on." },
	{ "evict-high", 0, "SODA_EVICT_HIGH", SODA_OPT_UINT, AT(evict_high_pct), "PCT", "95", 1,
	  100, NULL, 0, "Eviction starts at this share of the buffer." },
	{ "evict-low", 0, "SODA_EVICT_LOW", SODA_OPT_UINT, AT(evict_low_pct), "PCT", "90", 0, 100,
	  NULL, 0, "Eviction goes down to this share of the buffer." },
	{ "prefetch", 0, "SODA_PREFETCH", SODA_OPT_UINT, AT(prefetch_chunks), "CHUNKS", NULL, 1,
	  256, NULL, 1,
	  "The furthest that a detected stream runs ahead, or off. Default: 32, or 2 MiB of chunks "
	  "of less than 64 KiB." },
	{ "poll", 0, "SODA_POLL", SODA_OPT_UINT, AT(poll_us), "US", "50", 1, 10000, NULL, 1,
	  "Longest busy wait for an answer in microseconds, or off. Used only while it is measured "
	  "to be faster than sleeping." },
	{ "numa-node", 0, "SODA_NUMA_NODE", SODA_OPT_STRING, AT(numa_node), "NODE", "auto", 0, 0,
	  NULL, 0,
	  "Where the library's threads run and its buffers lie: the NUMA node of the network "
	  "device in use (auto), another one by its number, or anywhere (off)." },
	{ "connect-timeout", 0, "SODA_CONNECT_TIMEOUT", SODA_OPT_TIME_MS, AT(connect_timeout_ms),
	  "TIME", "5s", 1, 3600000, NULL, 0, "For reaching the server at start-up." },
	{ "fault-timeout", 0, "SODA_FAULT_TIMEOUT", SODA_OPT_TIME_MS, AT(fault_timeout_ms), "TIME",
	  "30s", 1, 86400000, NULL, 0, "For one page fault, reconnection included." },
	{ "log", 0, "SODA_LOG", SODA_OPT_CHOICE, AT(log_level), "LEVEL", "warning", 0, 0, levels, 0,
	  "Least severe message to be logged." },
	{ "trace", 0, "SODA_TRACE", SODA_OPT_STRING, AT(trace), "FILE", NULL, 0, 0, NULL, 0,
	  "Write down there which chunks came in which order; the file must not exist." },
	{ "trace-limit", 0, "SODA_TRACE_LIMIT", SODA_OPT_SIZE, AT(trace_limit), "SIZE", "64M", 4096,
	  1ull << 40, NULL, 0, "Most that the trace takes, reserved at the start." },
	{ "server-program", 0, "SODA_MEM_SERVER", SODA_OPT_STRING, AT(server_program), "PATH", NULL,
	  0, 0, NULL, 0,
	  "The program of the private server. Default: soda-mem-server beside the "
	  "library, or in the PATH." },
};

const struct soda_conf soda_settings_conf = {
	.program = "libsoda",
	.summary = "fabric-attached memory for a program",
	.args = "",
	.description = "",
	.options = options,
	.options_n = sizeof(options) / sizeof(options[0]),
};

static int set_text(struct soda_settings *s, const char *name, const char *text,
		    struct soda_conf_error *err)
{
	return text ? soda_conf_set(&soda_settings_conf, name, text, s, "struct soda_config", err)
		    : 0;
}

static int set_number(struct soda_settings *s, const char *name, uint64_t value,
		      struct soda_conf_error *err)
{
	char text[32];

	if (!value)
		return 0;
	if (value == SODA_OFF)
		return set_text(s, name, "off", err);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return set_text(s, name, text, err);
}

static int set_choice(struct soda_settings *s, const char *name, const char *const *choices,
		      uint32_t value, struct soda_conf_error *err)
{
	uint32_t n = 0;

	if (!value)
		return 0;
	while (choices[n])
		n++;
	if (value >= n) {
		snprintf(err->text, sizeof(err->text),
			 "struct soda_config: %s is %u, not one of its values", name, value);
		return -EINVAL;
	}
	return set_text(s, name, choices[value], err);
}

static int set_ms(struct soda_settings *s, const char *name, uint32_t ms,
		  struct soda_conf_error *err)
{
	char text[32];

	if (!ms)
		return 0;
	snprintf(text, sizeof(text), "%ums", ms);
	return set_text(s, name, text, err);
}

/* Stops at the first error. */
static int apply_texts(const struct soda_config *cfg, struct soda_settings *s,
		       struct soda_conf_error *err)
{
	int ret = set_text(s, "server", cfg->server, err);

	ret = ret ? ret : set_text(s, "dpu", cfg->dpu, err);
	ret = ret ? ret : set_text(s, "buffer", cfg->buffer, err);
	ret = ret ? ret : set_text(s, "evict", cfg->evict, err);
	ret = ret ? ret : set_text(s, "mechanisms", cfg->mechanisms, err);
	ret = ret ? ret : set_choice(s, "mode", modes, cfg->mode, err);
	ret = ret ? ret : set_choice(s, "on-error", on_errors, cfg->on_error, err);
	return ret ? ret : set_choice(s, "log", levels, cfg->log_level, err);
}

static int apply_numbers(const struct soda_config *cfg, struct soda_settings *s,
			 struct soda_conf_error *err)
{
	int ret = set_number(s, "chunk", cfg->chunk_bytes, err);

	ret = ret ? ret : set_number(s, "threads", cfg->threads, err);
	ret = ret ? ret : set_number(s, "evict-high", cfg->evict_high_pct, err);
	ret = ret ? ret : set_number(s, "evict-low", cfg->evict_low_pct, err);
	ret = ret ? ret : set_number(s, "prefetch", cfg->prefetch_chunks, err);
	ret = ret ? ret : set_number(s, "poll", cfg->poll_us, err);
	ret = ret ? ret : set_ms(s, "connect-timeout", cfg->connect_timeout_ms, err);
	return ret ? ret : set_ms(s, "fault-timeout", cfg->fault_timeout_ms, err);
}

static int apply_struct(const struct soda_config *cfg, struct soda_settings *s,
			struct soda_conf_error *err)
{
	int ret;

	if (cfg->struct_bytes < sizeof(*cfg) || cfg->reserved) {
		snprintf(err->text, sizeof(err->text),
			 "struct soda_config: initialise it with SODA_CONFIG_INIT");
		return -EINVAL;
	}
	ret = apply_texts(cfg, s, err);
	if (!ret)
		ret = apply_numbers(cfg, s, err);
	s->log = cfg->log;
	s->log_arg = cfg->log_arg;
	return ret;
}

/* "1/3" or "512M" */
static int parse_buffer(struct soda_settings *s, struct soda_conf_error *err)
{
	unsigned num = 1, den = 3;
	char end;

	if (s->buffer && strchr(s->buffer, '/')) {
		if (sscanf(s->buffer, "%u/%u%c", &num, &den, &end) != 2 || !num || !den ||
		    num > den)
			goto bad;
	} else if (s->buffer) {
		if (soda_parse_size(s->buffer, &s->buffer_bytes) || !s->buffer_bytes)
			goto bad;
	}
	s->buffer_num = num;
	s->buffer_den = den;
	return 0;
bad:
	snprintf(err->text, sizeof(err->text),
		 "buffer (SODA_BUFFER): '%.64s' is neither a size such as 512M nor a fraction such "
		 "as 1/3",
		 s->buffer);
	return -EINVAL;
}

/* Make `server` the agent's address, if there is an agent. */
static int choose_server(struct soda_settings *s, struct soda_conf_error *err)
{
	char text[SODA_ADDRESS_MAX + 1];

	if (!s->dpu)
		return 0;
	if (s->server) {
		snprintf(err->text, sizeof(err->text),
			 "server (SODA_SERVER) is %.64s and dpu (SODA_DPU) is %.64s: name one, the "
			 "agent knows its server",
			 s->server, s->dpu);
		return -EINVAL;
	}
	if (soda_address_of(s->dpu, text)) {
		snprintf(err->text, sizeof(err->text),
			 "dpu (SODA_DPU): an address has at most %d bytes", SODA_ADDRESS_MAX);
		return -EINVAL;
	}
	return set_text(s, "server", text, err);
}

/* One server, or a list of them. */
static int check_servers(struct soda_settings *s, struct soda_conf_error *err)
{
	struct soda_members members = { .n = 1 };
	struct soda_why why;

	if (s->server && *s->server && soda_members_parse(s->server, &members, &why))
		return soda_conf_fail(err, -EINVAL, "server (SODA_SERVER): %.200s", why.text);
	s->servers = members.n;
	s->alone = members.n == 1;
	return 0;
}

static int check_values(struct soda_settings *s, struct soda_conf_error *err)
{
	if (s->chunk_bytes & (s->chunk_bytes - 1)) {
		snprintf(err->text, sizeof(err->text),
			 "chunk (SODA_CHUNK): %llu is not a power of two from 4 KiB to 2 MiB",
			 (unsigned long long)s->chunk_bytes);
		return -EINVAL;
	}
	if (s->slab_bytes & ((2u << 20) - 1)) {
		snprintf(err->text, sizeof(err->text),
			 "slab (SODA_SLAB): %llu is not a multiple of 2 MiB",
			 (unsigned long long)s->slab_bytes);
		return -EINVAL;
	}
	if (s->evict_low_pct > s->evict_high_pct) {
		snprintf(err->text, sizeof(err->text),
			 "evict-low (SODA_EVICT_LOW): %u %% is over evict-high (%u %%)",
			 s->evict_low_pct, s->evict_high_pct);
		return -EINVAL;
	}
	return parse_buffer(s, err);
}

/* Copies of a slab lie on different servers. */
int soda_code_check(const struct soda_code *code, uint32_t servers, uint64_t chunk_bytes,
		    const char *what, struct soda_conf_error *err)
{
	if (code->members > 1 && servers < code->members)
		return soda_conf_fail(err, -ENOTSUP,
				      "%s: %s needs %u servers or more, and server (SODA_SERVER) "
				      "names %u",
				      what, code->name, code->members, servers);
	if (!code->pieces)
		return 0;
	if (soda_code_survives(code) && !soda_erasure_built())
		return soda_conf_fail(err, -ENOTSUP,
				      "%s: %s: this build of SODA has no ISA-L (libisal-dev); "
				      "mirror:2 needs none",
				      what, code->name);
	if (chunk_bytes % ((uint64_t)code->pieces * SODA_WIRE_PAGE))
		return soda_conf_fail(err, -EINVAL,
				      "%s: %s cuts a chunk into %u pieces of whole 4 KiB pages: "
				      "chunk (SODA_CHUNK) must be %uK or more, and is %lluK",
				      what, code->name, code->pieces, code->pieces * 4u,
				      (unsigned long long)chunk_bytes >> 10);
	return 0;
}

/* One server may be an agent in front of a pool: it says so when it is met. */
static int check_redundancy(const struct soda_settings *s, struct soda_conf_error *err)
{
	const struct soda_code *code = &soda_codes[s->redundancy];
	uint32_t servers = s->servers > 1 ? s->servers : code->members;
	int ret =
		soda_code_check(code, servers, s->chunk_bytes, "redundancy (SODA_REDUNDANCY)", err);

	return ret && servers < code->members ? -EINVAL : ret;
}

int soda_settings_check_servers(const struct soda_settings *s, struct soda_why *why)
{
	struct soda_conf_error err;
	int ret = soda_code_check(&soda_codes[s->redundancy], s->servers, s->chunk_bytes,
				  "redundancy (SODA_REDUNDANCY)", &err);

	if (ret)
		snprintf(why->text, sizeof(why->text), "%.*s", (int)sizeof(why->text) - 1,
			 err.text);
	return ret ? -EINVAL : 0;
}

static int parse_node(struct soda_settings *s, struct soda_conf_error *err)
{
	struct soda_conf_error why;

	if (soda_node_parse(s->numa_node, &s->node, &why) == 0)
		return 0;
	return soda_conf_fail(err, -EINVAL, "numa-node (SODA_NUMA_NODE): %.200s", why.text);
}

static uint32_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

/* 32 chunks of 64 KiB and more; of smaller chunks as many bytes. */
static uint32_t prefetch_default(uint64_t chunk_bytes)
{
	uint64_t n = (2u << 20) / chunk_bytes;

	return n < 32 ? 32 : n > 256 ? 256 : (uint32_t)n;
}

static void derive(struct soda_settings *s)
{
	if (!s->threads)
		s->threads = processors();
	if (!s->prefetch_chunks)
		s->prefetch_chunks = prefetch_default(s->chunk_bytes);
	if (s->prefetch_chunks == SODA_OFF)
		s->prefetch_chunks = 0;
	if (s->poll_us == SODA_OFF)
		s->poll_us = 0;
	if (s->mode == SODA_MODE_AUTO)
		s->mode = SODA_MODE_INLINE;
	if (s->on_error == SODA_ON_ERROR_DEFAULT)
		s->on_error = SODA_ON_ERROR_SIGBUS;
}

int soda_settings_load(const struct soda_config *cfg, struct soda_settings *s, struct soda_why *why)
{
	struct soda_conf_error err = { "" };
	int ret;

	memset(s, 0, sizeof(*s));
	ret = soda_conf_defaults(&soda_settings_conf, s, &err);
	if (!ret)
		ret = soda_conf_environment(&soda_settings_conf, s, &err);
	if (!ret && cfg)
		ret = apply_struct(cfg, s, &err);
	if (!ret)
		ret = choose_server(s, &err);
	if (!ret)
		ret = check_servers(s, &err);
	if (!ret)
		ret = check_values(s, &err);
	if (!ret)
		ret = check_redundancy(s, &err);
	if (!ret)
		ret = parse_node(s, &err);
	if (ret) {
		snprintf(why->text, sizeof(why->text), "%s", err.text);
		soda_settings_free(s);
		return ret;
	}
	derive(s);
	return 0;
}

int64_t soda_settings_minimum(const struct soda_settings *s, uint32_t threads, int64_t sealing)
{
	uint32_t servers = s->servers;

	/* each thread has a staging slot for each server */
	return (int64_t)threads * (SODA_LAST_CHUNKS_MIN + (servers ? servers : 1)) + sealing;
}

int soda_settings_check_buffer(const struct soda_settings *s, int64_t sealing, struct soda_why *why)
{
	uint64_t chunk = s->chunk_bytes;
	uint64_t minimum = (uint64_t)soda_settings_minimum(s, s->threads, sealing) * chunk;

	if (!s->buffer_bytes || s->buffer_bytes >= minimum)
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "buffer (SODA_BUFFER) of %.32s is too small: %u threads with chunks of %lluK need "
		 "%lluK",
		 s->buffer, s->threads, (unsigned long long)chunk >> 10,
		 (unsigned long long)minimum >> 10);
	return -EINVAL;
}

void soda_settings_free(struct soda_settings *s)
{
	soda_conf_free(&soda_settings_conf, s);
}
