/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Monte Carlo transport of particles, a proxy: a cube of cells of different materials, cut into a
 * 3-D mesh of domains, one for each rank.  A particle flies straight until it collides, where it is
 * absorbed or scattered, or leaves the cube.  One that crosses into another rank's domain is that
 * rank's: a message of 72 bytes, and nobody waits for it.  Tallies of each cell: absorptions, and
 * the length that particles flew.
 *   soda msg run -n 4 -- particles [-u] [-c CELLS] [PARTICLES]
 *
 * There are no rounds.  All is over when as many particles have ended, on all ranks together, as
 * were born: ranks add that up again and again (soda_msg_sum) while they go on.
 *
 * What happens to a particle depends on its number and on how often it has drawn; lengths are added
 * as integers.  So tallies do not depend on who flies a particle when, and are equal to those of
 * one process to the last bit.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

enum { CELLS = 32, CELLS_MAX = 512, BATCH = 256 };

struct particle {
	double at[3], way[3]; /* in cells; a unit vector */
	uint64_t number;
	uint32_t draws;
	int32_t cell[3];
};

struct mesh {
	int32_t cells; /* along each side */
	int32_t domains[3];
	unsigned rank;
	uint64_t *absorbed, *flown; /* of each cell; flown: in 2^-20 cells */
	uint64_t escaped, ended;
	struct particle *here; /* a stack of those that are to fly */
	size_t n, room;
};

enum fate { ABSORBED, ESCAPED, CROSSED };

/* Domains */

/* Factors of n, as equal as can be. */
static void split(unsigned n, int32_t domains[3])
{
	unsigned x = 1, y = 1;

	for (unsigned i = 2; i * i * i <= n; i++)
		if (n % i == 0)
			x = i;
	for (unsigned i = 2; i * i <= n / x; i++)
		if (n / x % i == 0)
			y = i;
	domains[0] = (int32_t)x;
	domains[1] = (int32_t)y;
	domains[2] = (int32_t)(n / x / y);
}

static unsigned owner(const struct mesh *m, const int32_t cell[3])
{
	int32_t rank = 0;

	for (int i = 2; i >= 0; i--)
		rank = rank * m->domains[i] + cell[i] * m->domains[i] / m->cells;
	return (unsigned)rank;
}

static size_t index_of(const struct mesh *m, const int32_t cell[3])
{
	return ((size_t)cell[2] * (size_t)m->cells + (size_t)cell[1]) * (size_t)m->cells +
	       (size_t)cell[0];
}

/* Flight */

/* The particle's next random number, in (0, 1). */
static double draw(struct particle *p)
{
	return ((double)(random_bits(p->number, p->draws++) >> 12) + 0.5) * 0x1p-52;
}

static void turn(struct particle *p)
{
	double z = 2 * draw(p) - 1, angle = 2 * M_PI * draw(p), flat = sqrt(1 - z * z);

	p->way[0] = flat * cos(angle);
	p->way[1] = flat * sin(angle);
	p->way[2] = z;
}

static struct particle born(const struct mesh *m, uint64_t number)
{
	struct particle p = { .number = number };

	for (int i = 0; i < 3; i++) {
		p.at[i] = draw(&p) * m->cells;
		p.cell[i] = p.at[i] < m->cells ? (int32_t)p.at[i] : m->cells - 1;
	}
	turn(&p);
	return p;
}

/* How far to the face of its cell that the particle flies at; *axis_p: across which axis. */
static double to_face(const struct particle *p, int *axis_p)
{
	double least = INFINITY;

	for (int i = 0; i < 3; i++) {
		double face = p->cell[i] + (p->way[i] > 0);
		double d = p->way[i] != 0 ? (face - p->at[i]) / p->way[i] : INFINITY;

		if (d < least) {
			least = d > 0 ? d : 0;
			*axis_p = i;
		}
	}
	return least;
}

/*
 * Until it ends, or crosses into a cell of another rank.  Out of line: all particles fly by the
 * same instructions.
 */
static __attribute__((noinline)) enum fate fly(struct mesh *m, struct particle *p)
{
	for (;;) {
		size_t cell = index_of(m, p->cell);
		uint64_t material = random_bits(UINT64_MAX, cell) % 4;
		double to_collision = -log(draw(p)) / (0.25 + 0.25 * (double)material);
		double absorption = 0.1 + 0.1 * (double)material;
		int axis = 0;
		double length = to_face(p, &axis);
		bool collides = to_collision < length;

		length = collides ? to_collision : length;
		m->flown[cell] += (uint64_t)(length * 0x1p20);
		for (int i = 0; i < 3; i++)
			p->at[i] += length * p->way[i];
		if (collides) {
			if (draw(p) < absorption) {
				m->absorbed[cell]++;
				return ABSORBED;
			}
			turn(p);
			continue;
		}
		p->cell[axis] += p->way[axis] > 0 ? 1 : -1;
		p->at[axis] = p->cell[axis] + !(p->way[axis] > 0); /* on the face, exactly */
		if (p->cell[axis] < 0 || p->cell[axis] >= m->cells)
			return ESCAPED;
		if (owner(m, p->cell) != m->rank)
			return CROSSED;
	}
}

/* Ranks */

static void keep(struct mesh *m, const struct particle *p)
{
	if (m->n == m->room) {
		m->room = m->room ? 2 * m->room : BATCH;
		m->here = ranks_realloc(m->here, m->room, sizeof(m->here[0]));
	}
	m->here[m->n++] = *p;
}

static void take(void *arg, const struct soda_message *msg)
{
	struct particle p;

	memcpy(&p, msg->data, sizeof(p));
	keep(arg, &p);
}

static void fly_one(struct ranks *r, struct mesh *m, struct particle p)
{
	enum fate fate = fly(m, &p);

	m->escaped += fate == ESCAPED;
	m->ended += fate != CROSSED;
	if (fate == CROSSED)
		ranks_push(r, owner(m, p.cell), &p, sizeof(p));
}

static void transport(struct ranks *r, struct mesh *m, uint64_t particles)
{
	int64_t asked = -1, ended; /* asked: what a sum under way was begun with */

	for (uint64_t i = r->rank; i < particles; i += r->n) {
		struct particle p = born(m, i);

		if (owner(m, p.cell) == r->rank)
			keep(m, &p);
		else
			ranks_push(r, owner(m, p.cell), &p, sizeof(p));
	}
	for (;;) {
		ranks_take(r);
		for (unsigned i = 0; m->n && i < BATCH; i++)
			fly_one(r, m, m->here[--m->n]);
		if (m->n)
			continue;
		if (asked < 0)
			asked = (int64_t)m->ended;
		if (!ranks_try_sum(r, asked, &ended)) /* goes on while particles come */
			ranks_wait(r, SODA_MSG_PULL | SODA_MSG_COLLECTIVE);
		else if ((uint64_t)ended == particles)
			break;
		else
			asked = -1; /* some were still on their way */
	}
	ranks_finish(r);
}

static void mesh_set_up(struct mesh *m, int32_t cells, unsigned rank, unsigned n)
{
	size_t all = (size_t)cells * (size_t)cells * (size_t)cells;

	*m = (struct mesh){ .cells = cells, .rank = rank };
	split(n, m->domains);
	m->absorbed = ranks_realloc(NULL, all, sizeof(uint64_t));
	m->flown = ranks_realloc(NULL, all, sizeof(uint64_t));
	memset(m->absorbed, 0, all * sizeof(uint64_t));
	memset(m->flown, 0, all * sizeof(uint64_t));
}

static void mesh_free(struct mesh *m)
{
	free(m->absorbed);
	free(m->flown);
	free(m->here);
}

/* By one, a particle after the other: how many tallies of this rank's cells differ. */
static int64_t compare(const struct mesh *m, uint64_t particles, int64_t escaped)
{
	int32_t cell[3];
	struct mesh one;
	int64_t wrong;

	mesh_set_up(&one, m->cells, 0, 1);
	for (uint64_t i = 0; i < particles; i++) {
		struct particle p = born(&one, i);

		one.escaped += fly(&one, &p) == ESCAPED;
	}
	wrong = (int64_t)one.escaped != escaped;
	for (cell[2] = 0; cell[2] < m->cells; cell[2]++)
		for (cell[1] = 0; cell[1] < m->cells; cell[1]++)
			for (cell[0] = 0; cell[0] < m->cells; cell[0]++) {
				size_t i = index_of(m, cell);
				bool mine = owner(m, cell) == m->rank;

				wrong += m->absorbed[i] != (mine ? one.absorbed[i] : 0) ||
					 m->flown[i] != (mine ? one.flown[i] : 0);
			}
	mesh_free(&one);
	return wrong;
}

struct options {
	uint64_t particles;
	int32_t cells;
	bool unverified;
};

static void get_options(int argc, char **argv, struct options *o)
{
	char *end = NULL;
	int c;

	*o = (struct options){ .particles = 100000, .cells = CELLS };
	while ((c = getopt(argc, argv, "uc:")) != -1 && c != '?')
		if (c == 'u')
			o->unverified = true;
		else
			o->cells = (int32_t)strtol(optarg, NULL, 10);
	if (argc > optind)
		o->particles = strtoull(argv[optind], &end, 10);
	if (c == -1 && argc - optind <= 1 && (!end || !*end) && o->cells >= 1 &&
	    o->cells <= CELLS_MAX)
		return;
	fprintf(stderr,
		"Usage: soda msg run -n RANKS -- particles [-u] [-c CELLS] [PARTICLES]\n"
		"CELLS, 1 to %d, are along each side of the cube. -u: do not verify the result.\n",
		CELLS_MAX);
	exit(2);
}

int main(int argc, char **argv)
{
	int64_t escaped, wrong;
	struct options o;
	struct mesh m;
	struct ranks r;
	double seconds;
	char what[128];

	get_options(argc, argv, &o);
	ranks_start(&r, "particles", take, &m);
	mesh_set_up(&m, o.cells, r.rank, r.n);
	ranks_ready(&r);
	transport(&r, &m, o.particles);
	escaped = ranks_sum(&r, (int64_t)m.escaped);
	seconds = ranks_seconds(&r);
	wrong = o.unverified ? -1 : compare(&m, o.particles, escaped);
	snprintf(what, sizeof(what),
		 "%" PRIu64 " particles in %dx%dx%d domains, %" PRId64 " escaped", o.particles,
		 m.domains[0], m.domains[1], m.domains[2], escaped);
	mesh_free(&m);
	return ranks_report(&r, what, seconds, wrong);
}
