! SPDX-License-Identifier: BSD-3-Clause
! An MPI program whose ranks have matrices in fabric memory; rank 0 gets all of rank 1's, too.
program ranks
  use, intrinsic :: iso_c_binding
  use mpi
  use soda
  implicit none
  integer, parameter :: n = 4096, m = 96  ! 3 MiB
  real(c_double), pointer, contiguous :: x(:, :), y(:, :)
  real(c_double) :: local(n), mine, total
  integer :: rank, number, error, j, wrong
  logical :: held
  type(soda_stats) :: s
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, number, error)
  call soda_init(buffer='1M', threads=1)
  call soda_allocate(x, [n, m])
  call soda_allocate(y, [n, m])
  do j = 1, m
    x(:, j) = j + 1000 * rank
  end do
  y = 2
  mine = 0
  do j = 1, m
    mine = mine + dot_product(x(:, j), y(:, j))
  end do
  call MPI_Allreduce(mine, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  wrong = 0
  if (rank == 1) then
    do j = 1, m
      call soda_hold(soda_part(x(:, j)), held)
      call MPI_Send(x(:, j), n, MPI_DOUBLE_PRECISION, 0, 0, MPI_COMM_WORLD, error)
      if (held) call soda_unhold(soda_part(x(:, j)))
    end do
  else if (rank == 0) then
    do j = 1, m
      call MPI_Recv(local, n, MPI_DOUBLE_PRECISION, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
      y(:, j) = local
    end do
    wrong = count(y /= x + 1000)
    print '(i0, a, i0, a, i0, a)', nint(total), ' of ', number, ' ranks, ', wrong, ' wrong'
  end if
  s = soda_get_stats()
  if (s%resident_peak_bytes > s%buffer_bytes .or. s%buffer_bytes > 1048576 .or. s%bytes_fetched == 0) then
    print '(a, i0, a)', 'rank ', rank, ' did not page'
    wrong = 1
  end if
  call soda_deallocate(x)
  call soda_deallocate(y)
  call MPI_Finalize(error)
  if (wrong /= 0) error stop 1
end program ranks
