/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../disk.h"
#include "base/log.h"
#include "several.h"
#include "soda.h"

struct several_object several_objects[SIM_HOSTS][SEVERAL_OBJECTS];

/*
 * The values that a file may hold: the last one that it is sure to hold, or a later one.  Values
 * only grow, so one that is older than `low` breaks a promise: a later one has been taken back.
 */
static struct {
	const char *name;
	unsigned pages;
	uint64_t low[SEVERAL_CELLS], high[SEVERAL_CELLS];
	uint64_t synced[SEVERAL_CELLS]; /* the same on stable storage */
	uint64_t written_ns;		/* when a writer last opened it */
	uint64_t kept_until_ns;		/* somebody may have had it open until then */
} files[SEVERAL_FILES] = { { .name = "f0", .pages = 40 },
			   { .name = "f2", .pages = 30 },
			   { .name = "f3", .pages = 12 } };

/* Published objects, of all names. */
static struct {
	int name;
	uint64_t begun_ns;     /* it may have been opened from then on; 0: not yet */
	uint64_t published_ns; /* it could be; 0: not yet, or never */
	uint64_t gone_ns;      /* nobody can have opened it since then; 0: somebody may */
	bool killed;	       /* a program that had it open was */
} versions[SEVERAL_VERSIONS];
static int versions_n;

static uint64_t values = 1000000; /* files have smaller ones to begin with */

/* The next one of all programs', open or not; after NULL the first. */
static struct several_object *next_of(struct several_object *o)
{
	o = o ? o + 1 : several_objects[0];
	return o < several_objects[0] + (size_t)SIM_HOSTS * SEVERAL_OBJECTS ? o : NULL;
}

static enum sim_process process_of(const struct several_object *o)
{
	return several_process((unsigned)((o - several_objects[0]) / SEVERAL_OBJECTS));
}

static bool is_file(const struct several_object *o)
{
	return o->kind == SEVERAL_READ || o->kind == SEVERAL_WRITTEN || o->kind == SEVERAL_PRIVATE;
}

bool several_forgotten(const struct several_object *o)
{
	struct sim_welcomed now = sim_net_welcomed(process_of(o), SIM_SERVER);

	return now.instance != o->met.instance || now.client != o->met.client ||
	       !sim_server(SIM_SERVER)->knows(o->met.instance, o->met.client);
}

const char *several_file_name(int file)
{
	return files[file].name;
}

unsigned several_file_pages(int file)
{
	return files[file].pages;
}

/* Opening and closing */

void several_model_ask(struct several_object *o, enum several_kind kind)
{
	o->kind = kind;
	o->version = -1;
	o->closing = false;
	o->asked_ns = sim_now();
	o->born_ns = 0;
	if (is_file(o)) /* the answer may be late, and the file another one by then */
		memcpy(o->low, files[o->file].low, sizeof(o->low));
}

void several_model_open(struct several_object *o, char *base, size_t bytes)
{
	o->base = base;
	o->pages = (unsigned)(bytes / 4096);
	o->born_ns = sim_now();
	o->met = sim_net_welcomed(process_of(o), SIM_SERVER);
	if (!is_file(o)) {
		memset(o->low, 0, sizeof(o->low));
		memset(o->high, 0, sizeof(o->high));
		return;
	}
	if (o->kind == SEVERAL_WRITTEN)
		files[o->file].written_ns = sim_now();
	for (unsigned i = 0; i < several_cells(o); i++)
		if (o->low[i] > files[o->file].low[i])
			o->low[i] = files[o->file].low[i];
	memcpy(o->high, files[o->file].high, sizeof(o->high));
}

void several_model_closing(struct several_object *o)
{
	o->closing = true;
	o->closing_ns = sim_now();
}

void several_model_stays(struct several_object *o)
{
	o->closing = false;
}

static bool any_writer(int file)
{
	for (struct several_object *o = NULL; (o = next_of(o));)
		if (o->base && o->kind == SEVERAL_WRITTEN && o->file == file)
			return true;
	return false;
}

/* It is in the file, and on stable storage. */
static void promise(int file, unsigned cell, uint64_t value)
{
	if (value > files[file].low[cell])
		files[file].low[cell] = value;
	if (value > files[file].synced[cell])
		files[file].synced[cell] = value;
}

/* A writer has let go of the file. */
static void leave_file(const struct several_object *o)
{
	bool alone = !any_writer(o->file) && files[o->file].written_ns < o->closing_ns;

	for (unsigned i = 0; i < several_cells(o); i++) {
		if (o->low[i] != o->high[i])
			continue; /* it has not looked */
		promise(o->file, i, o->low[i]);
		if (alone)
			files[o->file].high[i] = o->high[i];
	}
}

static bool version_is_open(int version)
{
	for (struct several_object *o = NULL; (o = next_of(o));)
		if (o->base && o->kind == SEVERAL_PUBLISHED && o->version == version)
			return true;
	return false;
}

/* Whether a program may have it that does not know which version it has. */
static bool any_unknown(int name)
{
	for (struct several_object *o = NULL; (o = next_of(o));)
		if (o->kind == SEVERAL_PUBLISHED && o->name == name && o->version < 0 &&
		    o->asked_ns)
			return true;
	return false;
}

static void leave_version(int version)
{
	if (version < 0 || versions[version].gone_ns || versions[version].killed ||
	    version_is_open(version) || any_unknown(versions[version].name) ||
	    several_excused(sim_now())) /* it may be closed later */
		return;
	versions[version].gone_ns = sim_now();
}

static void keep_until(int file, uint64_t from_now_ns)
{
	uint64_t until = sim_now() + from_now_ns;

	if (until > files[file].kept_until_ns)
		files[file].kept_until_ns = until;
}

void several_model_closed(struct several_object *o, bool well)
{
	bool forgotten = several_forgotten(o);

	o->base = NULL;
	o->asked_ns = 0;
	if (is_file(o)) /* or later, where the server does not hear of it at once */
		keep_until(o->file, several_excused(sim_now()) ? 120 * SIM_S : 0);
	if (o->kind == SEVERAL_WRITTEN && well && !forgotten)
		leave_file(o);
	if (o->kind == SEVERAL_PUBLISHED)
		leave_version(o->version);
}

void several_model_killed(unsigned program)
{
	for (unsigned i = 0; i < SEVERAL_OBJECTS; i++) {
		struct several_object *o = &several_objects[program][i];

		if (o->asked_ns && is_file(o))
			keep_until(o->file, 300 * SIM_S);
		if (o->asked_ns && o->kind == SEVERAL_PUBLISHED && o->version >= 0)
			versions[o->version].killed = true;
		for (int v = 0; v < versions_n; v++) /* any of them, for all that it knew */
			versions[v].killed = versions[v].killed ||
					     (o->asked_ns && o->kind == SEVERAL_PUBLISHED &&
					      o->version < 0 && versions[v].name == o->name);
		o->base = NULL;
		o->asked_ns = 0;
	}
}

void several_model_server_gone(void)
{
	for (int v = 0; v < versions_n; v++)
		if (!versions[v].gone_ns && versions[v].published_ns)
			versions[v].gone_ns = sim_now();
}

/* Rights to files and names */

static bool excludes(enum several_kind a, enum several_kind b)
{
	return a == SEVERAL_WRITTEN || (b == SEVERAL_WRITTEN && a == SEVERAL_READ);
}

/* A PRIVATE object is read from the file while it is opened. */
static bool is_being_read(const struct several_object *o, const struct several_object *self)
{
	return o->kind == SEVERAL_PRIVATE && self->kind == SEVERAL_WRITTEN &&
	       (!o->born_ns || o->born_ns >= self->asked_ns);
}

bool several_file_kept(const struct several_object *self)
{
	for (struct several_object *o = NULL; (o = next_of(o));)
		if (o != self && o->base && is_file(o) && o->file == self->file && !o->closing &&
		    o->born_ns <= self->asked_ns && excludes(o->kind, self->kind) &&
		    !several_forgotten(o))
			return true;
	return false;
}

bool several_file_may_be_kept(const struct several_object *self)
{
	if (files[self->file].kept_until_ns >= self->asked_ns)
		return true;
	for (struct several_object *o = NULL; (o = next_of(o));)
		if (o != self && o->asked_ns && is_file(o) && o->file == self->file &&
		    (excludes(o->kind, self->kind) || is_being_read(o, self)))
			return true;
	return false;
}

bool several_name_kept(const struct several_object *self)
{
	for (struct several_object *o = NULL; (o = next_of(o));)
		if (o != self && o->base && o->kind == SEVERAL_PUBLISHED && !o->closing &&
		    o->version >= 0 && versions[o->version].name == self->name &&
		    versions[o->version].published_ns &&
		    versions[o->version].published_ns <= self->asked_ns &&
		    o->born_ns <= self->asked_ns && !several_forgotten(o))
			return true;
	return false;
}

bool several_name_may_be_kept(const struct several_object *self)
{
	for (int v = 0; v < versions_n; v++)
		if (v != self->version && versions[v].name == self->name && versions[v].begun_ns &&
		    (!versions[v].gone_ns || versions[v].gone_ns >= self->asked_ns))
			return true;
	return false;
}

/* Versions */

uint64_t several_version_value(int version, unsigned cell)
{
	return cell && cell % 5 == 3 ? 0 : (uint64_t)(version + 1) << 16 | cell;
}

void several_version_begin(struct several_object *o, int name)
{
	if (versions_n == SEVERAL_VERSIONS)
		sim_fail("the simulation has no room for another version");
	versions[versions_n].name = name;
	o->name = name;
	o->version = versions_n++;
}

void several_publish_begins(struct several_object *o)
{
	o->asked_ns = sim_now();
	versions[o->version].begun_ns = sim_now();
}

void several_publish_ends(struct several_object *o, int ret, bool unknown)
{
	if (!ret) {
		for (int v = 0; v < versions_n; v++) /* the name was free */
			if (v != o->version && versions[v].name == o->name &&
			    versions[v].published_ns && !versions[v].gone_ns)
				versions[v].gone_ns = sim_now();
		versions[o->version].published_ns = o->born_ns = sim_now();
	} else if (!unknown && !versions[o->version].gone_ns) {
		versions[o->version].gone_ns = sim_now();
	}
}

/* The version that a value is of, which could be opened when o was. */
static void recognize(struct several_object *o, unsigned cell, uint64_t value)
{
	int v = (int)(value >> 16) - 1;

	if (!value && cell % 5 == 3)
		return;
	if (v < 0 || v >= versions_n || versions[v].name != o->name ||
	    value != several_version_value(v, cell))
		sim_fail("WRONG BYTES: cell %u of a published object holds %llx", cell,
			 (unsigned long long)value);
	if (!versions[v].begun_ns || versions[v].begun_ns > o->born_ns ||
	    (versions[v].gone_ns && versions[v].gone_ns < o->asked_ns))
		sim_fail("WRONG BYTES: what was opened as %d is version %d, which nobody had any "
			 "more, or not yet",
			 o->name, v);
	o->version = v;
}

/* Accesses */

static const char *at(const struct several_object *o, unsigned cell)
{
	return o->base + cell / SEVERAL_SLOTS * 4096 + (cell % SEVERAL_SLOTS ? 4088 : 0);
}

static void failed(const struct several_object *o, unsigned cell, const char *what, int err,
		   uint64_t began)
{
	sim_note("%s of cell %u of %p: %s", what, cell, (void *)o->base, soda_strerror(err));
	if (err == -EIO && several_forgotten(o))
		return;
	if (err == -EIO && sim_host_may_be_lost(at(o, cell)))
		sim_fail("BROKEN PROMISE: cell %u of an object of program %u is lost, and the "
			 "server has not forgotten it: %s",
			 cell, several_self(), sim_host_chunk(at(o, cell)));
	several_excuse(what, err, began);
}

/* A value stays that a program has seen of a file which it only reads. */
static void seen(struct several_object *o, unsigned cell, uint64_t value)
{
	bool stays = o->kind == SEVERAL_READ && !several_forgotten(o);

	o->low[cell] = o->high[cell] = value;
	if (stays && value > files[o->file].low[cell])
		files[o->file].low[cell] = value;
	if (stays && !any_writer(o->file))
		files[o->file].high[cell] = value;
}

void several_load(struct several_object *o, unsigned cell)
{
	uint64_t began = sim_now(), v = 0;
	int ret = sim_load(at(o, cell), &v);

	if (ret) {
		failed(o, cell, "a load", ret, began);
		return;
	}
	sim_note("loads %llu at cell %u of %p", (unsigned long long)v, cell, (void *)o->base);
	if (o->kind == SEVERAL_PUBLISHED && o->version < 0)
		recognize(o, cell, v);
	if (o->kind == SEVERAL_PUBLISHED && o->version >= 0) {
		if (v != several_version_value(o->version, cell))
			sim_fail("WRONG BYTES: cell %u of version %d holds %llx (%s)", cell,
				 o->version, (unsigned long long)v, sim_host_chunk(at(o, cell)));
		return;
	}
	if (o->kind == SEVERAL_PUBLISHED)
		return;
	if (v < o->low[cell] || v > o->high[cell])
		sim_fail("%s: cell %u of %s holds %llu, and program %u may see %llu, or up to "
			 "%llu (%s)",
			 is_file(o) && v < o->low[cell] && o->low[cell] != o->high[cell]
				 ? "BROKEN PROMISE"
				 : "WRONG BYTES",
			 cell, is_file(o) ? files[o->file].name : "an object",
			 (unsigned long long)v, several_self(), (unsigned long long)o->low[cell],
			 (unsigned long long)o->high[cell], sim_host_chunk(at(o, cell)));
	seen(o, cell, v);
}

/* The next number of all, or, before it is published, what the version has there. */
void several_store(struct several_object *o, unsigned cell)
{
	bool version = o->version >= 0;
	uint64_t began = sim_now(), own;
	int ret;

	own = version ? several_version_value(o->version, cell) - 1 : 0;
	ret = sim_store((char *)(uintptr_t)at(o, cell), version ? &own : &values);
	/* no point since the store itself */
	if (ret) {
		failed(o, cell, "a store", ret, began);
		return;
	}
	if (!version)
		own = values;
	sim_note("stores %llu at cell %u of %p", (unsigned long long)own, cell, (void *)o->base);
	o->low[cell] = o->high[cell] = own;
	if (o->kind == SEVERAL_WRITTEN && own > files[o->file].high[cell])
		files[o->file].high[cell] = own;
}

int several_sync(struct several_object *o)
{
	static uint64_t was[SIM_HOSTS][SEVERAL_CELLS];
	uint64_t *mine = was[several_self()], began = sim_now();
	int ret;

	for (unsigned i = 0; i < several_cells(o); i++)
		mine[i] = o->low[i] == o->high[i] ? o->low[i] : 0;
	ret = soda_sync(o->base, o->pages * 4096);
	sim_note("soda_sync of %p: %d %s", (void *)o->base, ret, ret ? soda_last_error() : "");
	if (ret && !several_forgotten(o))
		several_excuse("soda_sync", ret, began);
	for (unsigned i = 0; !ret && o->kind == SEVERAL_WRITTEN && i < several_cells(o); i++)
		if (!several_forgotten(o))
			promise(o->file, i, mine[i]);
	return ret;
}

static uint64_t word_of(int file, unsigned cell, bool stable)
{
	uint64_t at = (uint64_t)cell / SEVERAL_SLOTS * 4096 + (cell % SEVERAL_SLOTS ? 4088 : 0);

	return sim_disk_word(files[file].name, at, stable);
}

void several_model_begin(void)
{
	for (int f = 0; f < SEVERAL_FILES; f++)
		for (unsigned i = 0; i < files[f].pages * SEVERAL_SLOTS; i++)
			files[f].low[i] = files[f].high[i] = files[f].synced[i] =
				word_of(f, i, false);
}

void several_model_rewrite(int file, bool dated)
{
	if (sim_disk_is_being_changed(files[file].name))
		return; /* promise R10 has this exception: it would not be seen */
	sim_note("FAULT file %s is another one%s", files[file].name,
		 dated ? ", of the same date" : "");
	sim_disk_rewrite(files[file].name, &values, dated);
	for (unsigned i = 0; i < files[file].pages * SEVERAL_SLOTS; i++)
		files[file].low[i] = files[file].high[i] = files[file].synced[i] =
			word_of(file, i, false);
}

static void check_file(int file, unsigned cell, bool stable, uint64_t low)
{
	uint64_t has = word_of(file, cell, stable), high = files[file].high[cell];

	if (has < low || has > high)
		sim_fail("BROKEN PROMISE: at the end file %s has %llu in cell %u%s; %llu was "
			 "promised, or up to %llu",
			 files[file].name, (unsigned long long)has, cell,
			 stable ? " on stable storage" : "", (unsigned long long)low,
			 (unsigned long long)high);
}

void several_model_end(void)
{
	for (int f = 0; f < SEVERAL_FILES; f++)
		for (unsigned i = 0; i < files[f].pages * SEVERAL_SLOTS; i++) {
			check_file(f, i, false, files[f].low[i]);
			check_file(f, i, true, files[f].synced[i]);
		}
}
