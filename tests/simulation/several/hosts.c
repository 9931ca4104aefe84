/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each program has a host agent of its own, an object whose names begin with its name (link-agent).
 * A function that is called by the plain name is that of the process which is running.
 */
#include <stdlib.h>

#include "../sealing/sealing.h"
#include "../trust/tenants.h"
#include "several.h"
#include "soda.h"

unsigned several_self(void)
{
	enum sim_process p = sim_process();

	return p == SIM_HOST ? 0 : p - SIM_HOST2 + 1;
}

#define OF_ALL(fn)                                                                                 \
	extern __typeof__(fn) host1_##fn, host2_##fn, host3_##fn, host4_##fn;                      \
	static __typeof__(fn) *const all_##fn[] = { host1_##fn, host2_##fn, host3_##fn,            \
						    host4_##fn };
#define OWN(fn) all_##fn[several_self()]

OF_ALL(soda_init)
OF_ALL(soda_alloc)
OF_ALL(soda_alloc_file)
OF_ALL(soda_publish)
OF_ALL(soda_open_published)
OF_ALL(soda_try_free)
OF_ALL(soda_sync)
OF_ALL(soda_advise)
OF_ALL(soda_prefetch)
OF_ALL(soda_last_error)
OF_ALL(soda_shutdown)
OF_ALL(sim_load)
OF_ALL(sim_store)
OF_ALL(sim_uffd_is)
OF_ALL(sim_uffd_read)
OF_ALL(sim_host_has)
OF_ALL(sim_host_map)
OF_ALL(sim_host_share)
OF_ALL(sim_host_check_resident)
OF_ALL(sim_host_check)
OF_ALL(sim_host_chunk)
OF_ALL(sim_host_believes)
OF_ALL(sim_host_may_be_lost)
OF_ALL(sim_host_say)
OF_ALL(sim_host_punched)

extern bool host1_sim_host_shares, host2_sim_host_shares, host3_sim_host_shares,
	host4_sim_host_shares;
extern bool host1_sim_host_poisons, host2_sim_host_poisons, host3_sim_host_poisons,
	host4_sim_host_poisons;
/* net.c asks whether the agent's machine is the programs'. */
bool sim_host_shares;

static bool *const all_share[] = { &host1_sim_host_shares, &host2_sim_host_shares,
				   &host3_sim_host_shares, &host4_sim_host_shares };
static bool *const all_poison[] = { &host1_sim_host_poisons, &host2_sim_host_poisons,
				    &host3_sim_host_poisons, &host4_sim_host_poisons };

void several_prepare(void)
{
	*all_share[several_self()] = several_plan.agent.store;
	*all_poison[several_self()] = several_plan.poisons;
}

/* Functions that a program calls. */

int soda_init(const struct soda_config *cfg)
{
	return OWN(soda_init)(cfg);
}

void *soda_alloc(size_t bytes, unsigned flags)
{
	return OWN(soda_alloc)(bytes, flags);
}

void *soda_alloc_file(const char *name, size_t bytes, unsigned flags, size_t *bytes_p)
{
	return OWN(soda_alloc_file)(name, bytes, flags, bytes_p);
}

int soda_publish(void *obj, const char *name)
{
	return OWN(soda_publish)(obj, name);
}

void *soda_open_published(const char *name, size_t *bytes_p)
{
	return OWN(soda_open_published)(name, bytes_p);
}

int soda_try_free(void *p)
{
	return OWN(soda_try_free)(p);
}

int soda_sync(void *addr, size_t bytes)
{
	return OWN(soda_sync)(addr, bytes);
}

int soda_advise(void *addr, size_t bytes, int advice)
{
	return OWN(soda_advise)(addr, bytes, advice);
}

int soda_prefetch(const void *addr, size_t bytes)
{
	return OWN(soda_prefetch)(addr, bytes);
}

const char *soda_last_error(void)
{
	return OWN(soda_last_error)();
}

int soda_shutdown(void)
{
	return OWN(soda_shutdown)();
}

/* Questions of the simulation to a program, and acts of the program's kernel. */

int sim_load(const void *addr, uint64_t *value_p)
{
	return OWN(sim_load)(addr, value_p);
}

int sim_store(void *addr, uint64_t *value_p)
{
	return OWN(sim_store)(addr, value_p);
}

bool sim_uffd_is(int fd)
{
	return sim_is_host(sim_process()) && OWN(sim_uffd_is)(fd);
}

ssize_t sim_uffd_read(void *out, size_t bytes)
{
	return OWN(sim_uffd_read)(out, bytes);
}

bool sim_host_has(const void *addr)
{
	return OWN(sim_host_has)(addr);
}

bool sim_host_map(void *addr, size_t bytes, bool cover)
{
	return OWN(sim_host_map)(addr, bytes, cover);
}

void sim_host_share(void *addr, size_t bytes, uint64_t file, uint64_t at)
{
	OWN(sim_host_share)(addr, bytes, file, at);
}

void sim_host_check_resident(const void *addr, size_t bytes)
{
	OWN(sim_host_check_resident)(addr, bytes);
}

void sim_host_check(bool quiet)
{
	OWN(sim_host_check)(quiet);
}

const char *sim_host_chunk(const void *addr)
{
	return OWN(sim_host_chunk)(addr);
}

struct sim_belief sim_host_believes(enum sim_process server)
{
	return OWN(sim_host_believes)(server);
}

bool sim_host_may_be_lost(const void *addr)
{
	return OWN(sim_host_may_be_lost)(addr);
}

/* The agent has given memory of its store back: nobody has it any more. */
void sim_host_punched(uint64_t file, uint64_t at, uint64_t bytes)
{
	for (unsigned i = 0; i < several_plan.programs; i++)
		all_sim_host_punched[i](file, at, bytes);
}

void sim_host_say(void)
{
	for (unsigned i = 0; i < several_plan.programs; i++)
		all_sim_host_say[i]();
}

/* There is one server. */
const struct sim_server *sim_server(enum sim_process p)
{
	return &sim_server_node;
}

/* Things that are no part of this simulation: copies, sealed files, tenants. */

void sim_copies_changed(enum sim_copies_change what, const void *slab, unsigned k)
{
}

uint64_t sim_sealed_data_at(const char *name)
{
	return 0;
}

const char *sim_tenants_file(enum sim_process p)
{
	return NULL;
}
