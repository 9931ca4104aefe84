/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of MPI on one machine, with large buffers: messages, collectives, one-sided, a file. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 2 << 20 };

static int rank, ranks;

static void expect(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 99);
}

static int all_are(const int *a, int n, int factor, int what)
{
	for (int i = 0; i < n; i++)
		if (a[i] != i * factor + what)
			return 0;
	return 1;
}

static void set(int *a, int n, int what)
{
	for (int i = 0; i < n; i++)
		a[i] = i + what;
}

static void file(int *a, int *b, const char *name)
{
	MPI_Offset mine = (MPI_Offset)rank * N * (MPI_Offset)sizeof(int);
	MPI_File f;

	MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
	MPI_File_write_at_all(f, mine, a, N, MPI_INT, MPI_STATUS_IGNORE);
	MPI_File_read_at_all(f, mine, b, N, MPI_INT, MPI_STATUS_IGNORE);
	MPI_File_close(&f);
	expect(all_are(b, N, 1, rank), "what came back from the file");
}

int main(int argc, char **argv)
{
	int *a = malloc(N * sizeof(int)), *b = malloc(N * sizeof(int)), next, before;
	MPI_Win w;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	next = (rank + 1) % ranks;
	before = (rank + ranks - 1) % ranks;
	set(a, N, rank);
	MPI_Sendrecv(a, N, MPI_INT, next, 0, b, N, MPI_INT, before, 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	expect(all_are(b, N, 1, before), "a message");
	MPI_Alltoall(a, N / ranks, MPI_INT, b, N / ranks, MPI_INT, MPI_COMM_WORLD);
	expect(b[0] == rank * (N / ranks), "what all have sent");
	set(b, N, rank);
	MPI_Allreduce(MPI_IN_PLACE, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	expect(all_are(b, N, ranks, ranks * (ranks - 1) / 2), "a sum");
	MPI_Win_create(b, N * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &w);
	MPI_Win_fence(0, w);
	MPI_Put(a, N, MPI_INT, next, 0, N, MPI_INT, w);
	MPI_Win_fence(0, w);
	MPI_Win_free(&w);
	expect(all_are(b, N, 1, before), "what was put");
	file(a, b, argv[1]);
	if (!rank)
		puts("right");
	return MPI_Finalize();
}
