/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program whose ranks have vectors in fabric memory; rank 0 gets all of rank 1's, too. */
#include <mpi.h>
#include <soda.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

using vector = std::vector<double, soda::allocator<double>>;

int main(int argc, char **argv)
{
	const std::size_t n = 3 << 17, piece = 8192; /* 3 MiB */
	int rank, ranks, wrong = 0;
	double mine = 0, all = 0;
	soda::config cfg;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	cfg.buffer = "1M";
	cfg.threads = 1;
	soda::init(cfg);
	vector x(n), y(n);
	for (std::size_t i = 0; i < n; i++) {
		x[i] = static_cast<double>(i % 1000) + rank;
		y[i] = 2;
	}
	for (std::size_t i = 0; i < n; i++)
		mine += x[i] * y[i];
	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 1) {
		for (std::size_t at = 0; at < n; at += piece) {
			const auto part =
				soda::span<double>(x).subspan(at, std::min(piece, n - at));
			const soda::hold resident(part);

			MPI_Send(part.data(), static_cast<int>(part.size()), MPI_DOUBLE, 0, 0,
				 MPI_COMM_WORLD);
		}
	} else if (rank == 0) {
		std::vector<double> local(piece);

		for (std::size_t at = 0; at < n; at += piece) {
			MPI_Recv(local.data(), static_cast<int>(std::min(piece, n - at)),
				 MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			std::copy_n(local.begin(), std::min(piece, n - at),
				    y.begin() + static_cast<std::ptrdiff_t>(at));
		}
		for (std::size_t i = 0; i < n; i++)
			wrong += y[i] != x[i] + 1;
		std::printf("%.0f of %d ranks, %d wrong\n", all, ranks, wrong);
	}
	const soda_stats s = soda::stats();
	if (s.resident_peak_bytes > s.buffer_bytes || s.buffer_bytes > 1 << 20 ||
	    !s.bytes_fetched) {
		std::printf("rank %d did not page\n", rank);
		wrong = 1;
	}
	MPI_Finalize();
	return wrong != 0;
}
