! SPDX-License-Identifier: BSD-3-Clause
! Cases of the module soda, one a process: everything CASE.  All must hold: else a line, and status 1.
program everything
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64, real64, error_unit
  use soda
  implicit none
  integer(int64), parameter :: buffer = 1048576  ! three times as much is used
  integer, parameter :: enoent = 2, enomem = 12, einval = 22, efbig = 27, enospc = 28, ealready = 114
  character(40) :: name
  call get_command_argument(1, name)
  call soda_init(buffer='1M ', chunk_bytes=16384_c_size_t, threads=1)
  select case (name)
  case ('matrices'); call matrices()
  case ('columns'); call columns()
  case ('ranges'); call ranges()
  case ('files'); call files()
  case ('publish'); call publish()
  case ('errors'); call errors()
  case ('stops'); call stops()
  case ('numbers'); call numbers()
  case default; error stop 2
  end select

contains

  subroutine must(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (holds) return
    write (error_unit, '(a)') 'must hold: ' // what
    error stop 1
  end subroutine

  ! At most the buffer was resident, and that was not enough.
  subroutine must_have_paged()
    type(soda_stats) :: s
    s = soda_get_stats()
    call must(s%buffer_bytes <= buffer, 'the buffer is as asked for')
    call must(s%resident_peak_bytes <= s%buffer_bytes, 'no more was resident')
    call must(s%fam_bytes >= 3 * buffer, 'three times as much is there')
    call must(s%evicted_dirty > 0 .and. s%bytes_fetched > 0, 'pages went and came')
  end subroutine

  ! A stencil, as in local memory.
  subroutine matrices()
    integer, parameter :: n = 512
    real(real64), pointer, contiguous :: a(:, :), b(:, :)
    real(real64), allocatable :: c(:, :), d(:, :)
    integer :: i, j, step
    call soda_allocate(a, [n, n])
    call soda_allocate(b, [n, n])
    allocate (c(n, n), d(n, n))
    call must(all(a == 0), 'zeros')
    do j = 1, n
      do i = 1, n
        a(i, j) = mod(i * 31 + j * 17, 101)
        c(i, j) = a(i, j)
      end do
    end do
    b = a
    d = c
    do step = 1, 3
      do j = 2, n - 1
        b(2:n - 1, j) = 0.25d0 * (a(1:n - 2, j) + a(3:n, j) + a(2:n - 1, j - 1) + a(2:n - 1, j + 1))
        d(2:n - 1, j) = 0.25d0 * (c(1:n - 2, j) + c(3:n, j) + c(2:n - 1, j - 1) + c(2:n - 1, j + 1))
      end do
      a = b
      c = d
    end do
    call must(all(a == c), 'the stencil is as in local memory')
    call must(sum(a) == sum(c) .and. maxval(a) == maxval(c), 'the reductions are, too')
    call must(all(maxloc(a) == maxloc(c)), 'and where the largest is')
    call must(all(matmul(a(1:50, :), b(:, 1:50)) == matmul(c(1:50, :), d(:, 1:50))), 'the product is, too')
    call must_have_paged()
    call soda_deallocate(b)
    call must(.not. associated(b), 'gone')
    b(0:n - 1, -1:n - 2) => a
    call must(lbound(b, 1) == 0 .and. b(0, -1) == c(1, 1), 'bounds of its own')
    call soda_deallocate(a)
  end subroutine

  ! Rank 3, of integers, by a shape of 8 bytes; passed on as any array.
  subroutine columns()
    integer(int64), pointer :: a(:, :, :)
    integer(int64) :: i, j, k, n(3) = [100_int64, 90_int64, 50_int64]
    call soda_allocate(a, n, flags=0)
    call must(all(shape(a, int64) == n) .and. all(lbound(a) == 1), 'the shape')
    do concurrent(i=1:n(1), j=1:n(2), k=1:n(3))
      a(i, j, k) = i + 1000 * j + 1000000 * k
    end do
    call must(total(reshape(a, [n(1) * n(2) * n(3)])) == &
      total([(((i + 1000 * j + 1000000 * k, i=1, n(1)), j=1, n(2)), k=1, n(3))]), 'the sum')
    call must(a(100, 90, 50) == 50090100, 'the last one')
    call must_have_paged()
    call soda_deallocate(a)
  end subroutine

  integer(int64) function total(x)
    integer(int64), intent(in) :: x(:)
    total = sum(x)
  end function

  subroutine ranges()
    real(c_float), pointer :: a(:, :)
    real(c_float), target :: local(10)
    type(soda_range) :: part
    type(soda_stats) :: before, after
    integer :: stat
    logical :: held
    character(200) :: errmsg
    call soda_allocate(a, [4096, 256])
    a = 1
    call soda_set_name(soda_part(a), 'a matrix')
    part = soda_part(a(:, 3:4))
    call must(part%bytes == 4096 * 2 * 4, 'bytes of a part')
    call soda_advise(part, SODA_COLD)
    call soda_prefetch(part)
    call soda_sync(part)
    call soda_sync()
    call soda_hold(part, held)
    before = soda_get_stats()
    call must(held .and. a(1, 3) == 1 .and. a(4096, 4) == 1, 'held')
    after = soda_get_stats()
    call must(after%faults == before%faults, 'no fault while it is held')
    call soda_unhold(part)
    call soda_advise(soda_part(a(:, 129:)), SODA_DISCARD)
    call must(sum(a(:, 129)) == 0 .and. sum(a(:, 128)) == 4096, 'discarded')
    call soda_advise(soda_part(a(1:2, :)), SODA_DISCARD, stat=stat)
    call must(stat == einval .and. a(1, 1) == 1, 'not in one piece')
    call soda_sync(soda_part(a(::2, :)), stat=stat)
    call must(stat == einval, 'not in one piece, either')
    call soda_hold(soda_part(a), held, stat, errmsg)
    call must(stat == enomem .and. .not. held .and. len_trim(errmsg) > 10, 'too much to hold')
    call soda_prefetch(soda_part(local), stat=stat, errmsg=errmsg)
    call must(stat == einval .and. index(errmsg, 'not inside one object') > 0, 'local memory: ' // trim(errmsg))
    call must_have_paged()
    call soda_deallocate(a)
  end subroutine

  subroutine files()
    integer(c_int32_t), pointer :: a(:, :), all_of(:)
    integer(c_int64_t), pointer :: seven(:)
    integer(c_int8_t), pointer :: bytes(:)
    integer :: i, stat
    character(200) :: errmsg
    call soda_open(a, 'matrix', ior(SODA_WRITABLE, SODA_CREATE), [1024, 1024])
    do i = 1, 1024
      a(:, i) = i
    end do
    call soda_deallocate(a, stat=stat)
    call must(stat == 0, 'written back')
    call soda_open(a, 'matrix  ', SODA_READ_ONLY, [1024_int64, 1024_int64])
    call soda_open(all_of, 'matrix', SODA_READ_ONLY)
    call must(size(all_of) == 1048576, 'as long as the file')
    call must(sum(int(a, int64)) == 1024_int64 * 1024 * 1025 / 2, 'its sum')
    call must(sum(int(all_of, int64)) == sum(int(a, int64)), 'the sum of the whole file')
    call must_have_paged()
    call soda_open(bytes, 'odd', ior(SODA_WRITABLE, SODA_CREATE), [10])
    bytes = 1
    call soda_deallocate(bytes)
    call soda_open(seven, 'odd', SODA_READ_ONLY, stat=stat, errmsg=errmsg)
    call must(stat == einval .and. .not. associated(seven), 'not of 8 bytes each')
    call must(index(errmsg, 'whole number') > 0, 'a sentence: ' // trim(errmsg))
    call soda_open(seven, 'odd', SODA_READ_ONLY, [2], stat)
    call must(stat == efbig .and. .not. associated(seven), 'longer than the file')
    call soda_open(seven, 'none', SODA_READ_ONLY, stat=stat)
    call must(stat == enoent, 'not there')
    call soda_open(seven, 'odd', SODA_READ_ONLY, [0], stat)
    call must(stat == einval, 'no element')
    call soda_open(a, 'odd', SODA_READ_ONLY, [2_int64**40, 2_int64**40], stat)
    call must(stat == enomem, 'a file too large to count')
  end subroutine

  subroutine publish()
    complex(c_double_complex), pointer :: a(:), b(:, :)
    type(c_ptr) :: address
    integer(c_size_t) :: bytes
    integer :: stat
    call soda_allocate(a, [1000])
    a = (1, -1)
    call soda_publish(soda_part(a), 'thousand')
    call soda_open_published('thousand', address, bytes)
    call must(bytes == 16000, 'its size')
    call c_f_pointer(address, b, [10, 100])
    call must(sum(b) == (1000, -1000), 'its content')
    call soda_publish(soda_part(a), 'again', stat)
    call must(stat == ealready, 'published before')
    call soda_free(address)
    call soda_free(address, stat)
    call must(stat == einval, 'freed before')
    call soda_open_published('none', address, bytes, stat)
    call must(stat == enoent .and. .not. c_associated(address), 'not there')
  end subroutine

  subroutine errors()
    real(c_double), pointer :: a(:, :), b(:, :), none(:)
    real(c_double), target :: local(4, 4)
    integer :: stat
    character(300) :: errmsg
    errmsg = 'nothing'
    call soda_init(stat=stat)
    call must(stat == ealready, 'initialised before')
    call soda_allocate(a, [3], stat=stat, errmsg=errmsg)
    call must(stat == einval .and. .not. associated(a), 'a shape of another rank')
    call soda_allocate(a, [3, 4, 5], stat=stat)
    call must(stat == einval, 'a shape of another rank, again')
    call soda_allocate(a, [3, -4], stat=stat)
    call must(stat == einval, 'negative')
    call soda_allocate(a, [2_int64**40, 2_int64**40], stat=stat)
    call must(stat == enomem, 'too large to count')
    call soda_allocate(a, [2_int64**20, 2_int64**20], stat=stat, errmsg=errmsg)
    call must(stat == enospc .and. index(errmsg, '8 TiB wanted') > 0, 'too large: ' // errmsg)
    call soda_allocate(a, [2, 2], flags=1, stat=stat)
    call must(stat == einval, 'no such flag')
    errmsg = 'nothing'
    call soda_allocate(a, [4, 4], stat=stat, errmsg=errmsg)
    call must(stat == 0 .and. errmsg == 'nothing', 'no error')
    b => a(2:3, 2:3)
    call soda_deallocate(b, stat)
    call must(stat == einval .and. associated(b), 'a part')
    b => local
    call soda_deallocate(b, stat)
    call must(stat == einval .and. associated(b), 'local memory')
    call soda_deallocate(a, stat)
    call must(stat == 0 .and. .not. associated(a), 'freed')
    call soda_deallocate(a, stat)
    call must(stat == 0, 'nothing to free')
    call soda_allocate(none, [0])
    call must(size(none) == 0 .and. associated(none), 'no elements')
    call soda_deallocate(none)
    call must(len(soda_version()) >= 5, 'a version')
    call soda_shutdown(stat)
    call must(stat == 0, 'ended')
    call soda_allocate(a, [4, 4], stat=stat)
    call must(stat /= 0 .and. len(soda_last_error()) > 10, 'after the end')
  end subroutine

  ! Without stat= it is the program's end.
  subroutine stops()
    real(c_double), pointer :: a(:)
    call soda_allocate(a, [2_int64**40])
  end subroutine

  ! For C to compare.
  subroutine numbers()
    type(soda_stats) :: s
    print '(*(i0, 1x))', c_sizeof(s), soda_mirror(2), soda_ec(4, 2), soda_stripe(8), SODA_SEALED, SODA_OFF, &
      SODA_ABANDON
    s = soda_get_stats()
    print '(*(i0, 1x))', s%chunk_bytes, s%mode, s%buffer_bytes
  end subroutine

end program everything
