! SPDX-License-Identifier: BSD-3-Clause
! Heat that spreads on a square plate, whose two fields are in fabric memory: heat [SIDE [STEPS]].
!
!   gfortran -O2 $(pkg-config --variable=includedir soda)/soda.f90 heat.f90 $(pkg-config --libs soda)
!   SODA_BUFFER=1/3 ./a.out 4000 10
!
! Columns lie in one piece in Fortran: a step reads and writes them in that order, so that pages
! come and go as streams.
program heat
  use, intrinsic :: iso_c_binding
  use soda
  implicit none
  real(c_double), pointer, contiguous :: now(:, :), next(:, :), old(:, :)
  type(soda_stats) :: s
  integer :: n, steps, step
  n = argument(1, 1000)
  steps = argument(2, 10)

  call soda_allocate(now, [n, n])  ! zeros: cold
  call soda_allocate(next, [n, n])
  call soda_set_name(soda_part(now), 'plate')
  call soda_advise(soda_part(now), SODA_SEQUENTIAL)
  call soda_advise(soda_part(next), SODA_SEQUENTIAL)
  now(:, 1) = 100                   ! but for one edge
  next(:, 1) = 100
  do step = 1, steps
    call spread(now, next)
    old => now
    now => next
    next => old
  end do

  print '(a, f8.3, a, f14.3)', 'warmest: ', maxval(now(2:n - 1, 2:n - 1)), ', sum: ', sum(now)
  s = soda_get_stats()
  print '(i0, a, i0, a)', s%fam_bytes / 1048576, ' MiB, of which at most ', &
    s%resident_peak_bytes / 1048576, ' were here'
  call soda_deallocate(now)
  call soda_deallocate(next)

contains

  subroutine spread(from, to)
    real(c_double), intent(in), contiguous :: from(:, :)
    real(c_double), intent(inout), contiguous :: to(:, :)
    integer :: i, j
    do j = 2, size(from, 2) - 1
      do i = 2, size(from, 1) - 1
        to(i, j) = 0.25d0 * (from(i - 1, j) + from(i + 1, j) + from(i, j - 1) + from(i, j + 1))
      end do
    end do
  end subroutine

  integer function argument(which, otherwise)
    integer, intent(in) :: which, otherwise
    character(20) :: text
    argument = otherwise
    if (command_argument_count() < which) return
    call get_command_argument(which, text)
    read (text, *) argument
  end function

end program heat
