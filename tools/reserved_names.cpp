// Names that a kernel cannot have: NAME.h declares NAME in the global namespace, beside all that the headers it includes declare there.
//
// The names of the C library are those of C11, C23 and POSIX in the headers of glibc: NAME.h includes <stdint.h>, <string.h> and C++
// headers, which bring others, and the next library may bring more. So all headers of C count, and <pthread.h>, <sched.h>, <unistd.h>,
// <fcntl.h>, <sys/stat.h>.
#include "reserved_names.h"

#include <iterator>

namespace polyhead::tools {
namespace {

// Words between blanks, one before the first and one behind the last.
// clang-format off
constexpr ReservedNames rows[] = {
    {"a keyword of C", " "
     "alignas alignof auto bool break case char const constexpr continue default do double else enum extern false float for goto if "
     "inline int long nullptr register restrict return short signed sizeof static static_assert struct switch thread_local true "
     "typedef typeof typeof_unqual union unsigned void volatile while "},
    {"a keyword of C++", " "
     "and and_eq asm bitand bitor catch char16_t char32_t char8_t class co_await co_return co_yield compl concept const_cast consteval "
     "constinit decltype delete dynamic_cast explicit export final friend import module mutable namespace new noexcept not not_eq "
     "operator or or_eq override private protected public reinterpret_cast requires static_cast template this throw try typeid "
     "typename using virtual wchar_t xor xor_eq "},
    {"a name that has a meaning of its own in every program", " "
     "main std polyhead linux unix i386 "},
    {"the name of a header of the C library, which NAME.h would hide", " "
     "aio aliases alloca ar argp argz assert byteswap complex cpio ctype dirent dlfcn elf endian envz err errno error execinfo fcntl "
     "features fenv fmtmsg fnmatch fstab fts ftw gconv getopt glob grp gshadow iconv ifaddrs inttypes iso646 langinfo lastlog "
     "libgen libintl limits link locale malloc math mcheck memory mntent monetary mqueue netdb nl_types nss obstack paths poll printf "
     "proc_service pthread pty pwd re_comp regex regexp resolv sched search semaphore setjmp sgtty shadow signal spawn stab stdalign "
     "stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdio_ext stdlib stdnoreturn string strings syscall sysexits "
     "syslog tar termio termios tgmath thread_db threads time ttyent uchar ucontext ulimit unistd utime utmp utmpx values wait wchar "
     "wctype wordexp "},
    {"a macro or a constant of the C library", " "
     "ACCESSPERMS AIO_PRIO_DELTA_MAX ALLPERMS ATOMIC_BOOL_LOCK_FREE ATOMIC_CHAR16_T_LOCK_FREE ATOMIC_CHAR32_T_LOCK_FREE "
     "ATOMIC_CHAR_LOCK_FREE ATOMIC_FLAG_INIT ATOMIC_INT_LOCK_FREE ATOMIC_LLONG_LOCK_FREE ATOMIC_LONG_LOCK_FREE "
     "ATOMIC_POINTER_LOCK_FREE ATOMIC_SHORT_LOCK_FREE ATOMIC_VAR_INIT ATOMIC_WCHAR_T_LOCK_FREE AT_EACCESS AT_FDCWD AT_REMOVEDIR "
     "AT_SYMLINK_FOLLOW AT_SYMLINK_NOFOLLOW BC_BASE_MAX BC_DIM_MAX BC_SCALE_MAX BC_STRING_MAX BIG_ENDIAN BUFSIZ BUS_ADRALN BUS_ADRERR "
     "BUS_MCEERR_AO BUS_MCEERR_AR BUS_OBJERR BYTE_ORDER CHARCLASS_NAME_MAX CHAR_BIT CHAR_MAX CHAR_MIN CLD_CONTINUED CLD_DUMPED "
     "CLD_EXITED CLD_KILLED CLD_STOPPED CLD_TRAPPED CLOCKS_PER_SEC CLOCK_BOOTTIME CLOCK_BOOTTIME_ALARM CLOCK_MONOTONIC "
     "CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME CLOCK_REALTIME_ALARM CLOCK_REALTIME_COARSE "
     "CLOCK_TAI CLOCK_THREAD_CPUTIME_ID CMPLX CMPLXF CMPLXL COLL_WEIGHTS_MAX DBL_DECIMAL_DIG DBL_DIG DBL_EPSILON DBL_HAS_SUBNORM "
     "DBL_MANT_DIG DBL_MAX DBL_MAX_10_EXP DBL_MAX_EXP DBL_MIN DBL_MIN_10_EXP DBL_MIN_EXP DBL_TRUE_MIN DECIMAL_DIG DEFFILEMODE "
     "DELAYTIMER_MAX E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EADV EAFNOSUPPORT EAGAIN EALREADY EBADE EBADF EBADFD EBADMSG EBADR EBADRQC "
     "EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHRNG ECOMM ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDEADLOCK EDESTADDRREQ EDOM "
     "EDOTDOT EDQUOT EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR "
     "EISNAM EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP "
     "EMEDIUMTYPE EMFILE EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE ENOANO ENOBUFS ENOCSI "
     "ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET ENOPKG ENOPROTOOPT ENOSPC ENOSR ENOSTR ENOSYS "
     "ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE ENOTSOCK ENOTSUP ENOTTY ENOTUNIQ ENXIO EOF EOPNOTSUPP EOVERFLOW "
     "EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO EPROTONOSUPPORT EPROTOTYPE ERANGE EREMCHG EREMOTE EREMOTEIO ERESTART ERFKILL EROFS "
     "ESHUTDOWN ESOCKTNOSUPPORT ESPIPE ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS "
     "EWOULDBLOCK EXDEV EXFULL EXIT_FAILURE EXIT_SUCCESS EXPR_NEST_MAX FAPPEND FASYNC FD_CLOEXEC FD_CLR FD_ISSET FD_SET FD_SETSIZE "
     "FD_ZERO FE_ALL_EXCEPT FE_DFL_ENV FE_DIVBYZERO FE_DOWNWARD FE_INEXACT FE_INVALID FE_OVERFLOW FE_TONEAREST FE_TOWARDZERO "
     "FE_UNDERFLOW FE_UPWARD FFSYNC FILE FILENAME_MAX FLT_DECIMAL_DIG FLT_DIG FLT_EPSILON FLT_EVAL_METHOD FLT_HAS_SUBNORM FLT_MANT_DIG "
     "FLT_MAX FLT_MAX_10_EXP FLT_MAX_EXP FLT_MIN FLT_MIN_10_EXP FLT_MIN_EXP FLT_RADIX FLT_ROUNDS FLT_TRUE_MIN FNDELAY FNONBLOCK "
     "FOPEN_MAX FPE_CONDTRAP FPE_FLTDIV FPE_FLTINV FPE_FLTOVF FPE_FLTRES FPE_FLTSUB FPE_FLTUND FPE_FLTUNK FPE_INTDIV FPE_INTOVF "
     "FP_ILOGB0 FP_ILOGBNAN FP_INFINITE FP_NAN FP_NORMAL FP_SUBNORMAL FP_XSTATE_MAGIC1 FP_XSTATE_MAGIC2 FP_XSTATE_MAGIC2_SIZE FP_ZERO "
     "F_DUPFD F_DUPFD_CLOEXEC F_EXLCK F_GETFD F_GETFL F_GETLK F_GETLK64 F_GETOWN F_LOCK F_OK F_RDLCK F_SETFD F_SETFL F_SETLK F_SETLK64 "
     "F_SETLKW F_SETLKW64 F_SETOWN F_SHLCK F_TEST F_TLOCK F_ULOCK F_UNLCK F_WRLCK HOST_NAME_MAX HUGE_VAL HUGE_VALF HUGE_VALL I "
     "ILL_BADIADDR ILL_BADSTK ILL_COPROC ILL_ILLADR ILL_ILLOPC ILL_ILLOPN ILL_ILLTRP ILL_PRVOPC ILL_PRVREG INFINITY INT16_C INT16_MAX "
     "INT16_MIN INT16_WIDTH INT32_C INT32_MAX INT32_MIN INT32_WIDTH INT64_C INT64_MAX INT64_MIN INT64_WIDTH INT8_C INT8_MAX INT8_MIN "
     "INT8_WIDTH INTMAX_C INTMAX_MAX INTMAX_MIN INTMAX_WIDTH INTPTR_MAX INTPTR_MIN INTPTR_WIDTH INT_FAST16_MAX INT_FAST16_MIN "
     "INT_FAST16_WIDTH INT_FAST32_MAX INT_FAST32_MIN INT_FAST32_WIDTH INT_FAST64_MAX INT_FAST64_MIN INT_FAST64_WIDTH INT_FAST8_MAX "
     "INT_FAST8_MIN INT_FAST8_WIDTH INT_LEAST16_MAX INT_LEAST16_MIN INT_LEAST16_WIDTH INT_LEAST32_MAX INT_LEAST32_MIN "
     "INT_LEAST32_WIDTH INT_LEAST64_MAX INT_LEAST64_MIN INT_LEAST64_WIDTH INT_LEAST8_MAX INT_LEAST8_MIN INT_LEAST8_WIDTH INT_MAX "
     "INT_MIN LC_ADDRESS LC_ADDRESS_MASK LC_ALL LC_ALL_MASK LC_COLLATE LC_COLLATE_MASK LC_CTYPE LC_CTYPE_MASK LC_GLOBAL_LOCALE "
     "LC_IDENTIFICATION LC_IDENTIFICATION_MASK LC_MEASUREMENT LC_MEASUREMENT_MASK LC_MESSAGES LC_MESSAGES_MASK LC_MONETARY "
     "LC_MONETARY_MASK LC_NAME LC_NAME_MASK LC_NUMERIC LC_NUMERIC_MASK LC_PAPER LC_PAPER_MASK LC_TELEPHONE LC_TELEPHONE_MASK LC_TIME "
     "LC_TIME_MASK LDBL_DECIMAL_DIG LDBL_DIG LDBL_EPSILON LDBL_HAS_SUBNORM LDBL_MANT_DIG LDBL_MAX LDBL_MAX_10_EXP LDBL_MAX_EXP "
     "LDBL_MIN LDBL_MIN_10_EXP LDBL_MIN_EXP LDBL_TRUE_MIN LINE_MAX LITTLE_ENDIAN LLONG_MAX LLONG_MIN LOCK_EX LOCK_NB LOCK_SH LOCK_UN "
     "LOGIN_NAME_MAX LONG_MAX LONG_MIN L_INCR L_SET L_XTND MATH_ERREXCEPT MATH_ERRNO MAX_CANON MAX_INPUT MB_CUR_MAX MB_LEN_MAX "
     "MINSIGSTKSZ MQ_PRIO_MAX M_1_PI M_2_PI M_2_SQRTPI M_E M_LN10 M_LN2 M_LOG10E M_LOG2E M_PI M_PI_2 M_PI_4 M_SQRT1_2 M_SQRT2 NAME_MAX "
     "NAN NFDBITS NGREG NGROUPS_MAX NSIG NULL ONCE_FLAG_INIT O_ACCMODE O_APPEND O_ASYNC O_CLOEXEC O_CREAT O_DIRECTORY O_DSYNC O_EXCL "
     "O_FSYNC O_NDELAY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_RDONLY O_RDWR O_RSYNC O_SYNC O_TRUNC O_WRONLY PATH_MAX PDP_ENDIAN PIPE_BUF "
     "POLL_ERR POLL_HUP POLL_IN POLL_MSG POLL_OUT POLL_PRI POSIX_FADV_DONTNEED POSIX_FADV_NOREUSE POSIX_FADV_NORMAL POSIX_FADV_RANDOM "
     "POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED PRIX16 PRIX32 PRIX64 PRIX8 PRIXFAST16 PRIXFAST32 PRIXFAST64 PRIXFAST8 PRIXLEAST16 "
     "PRIXLEAST32 PRIXLEAST64 PRIXLEAST8 PRIXMAX PRIXPTR PTHREAD_BARRIER_SERIAL_THREAD PTHREAD_CANCELED PTHREAD_CANCEL_ASYNCHRONOUS "
     "PTHREAD_CANCEL_DEFERRED PTHREAD_CANCEL_DISABLE PTHREAD_CANCEL_ENABLE PTHREAD_COND_INITIALIZER PTHREAD_CREATE_DETACHED "
     "PTHREAD_CREATE_JOINABLE PTHREAD_DESTRUCTOR_ITERATIONS PTHREAD_EXPLICIT_SCHED PTHREAD_INHERIT_SCHED PTHREAD_KEYS_MAX "
     "PTHREAD_MUTEX_ADAPTIVE_NP PTHREAD_MUTEX_DEFAULT PTHREAD_MUTEX_ERRORCHECK PTHREAD_MUTEX_ERRORCHECK_NP PTHREAD_MUTEX_INITIALIZER "
     "PTHREAD_MUTEX_NORMAL PTHREAD_MUTEX_RECURSIVE PTHREAD_MUTEX_RECURSIVE_NP PTHREAD_MUTEX_ROBUST PTHREAD_MUTEX_ROBUST_NP "
     "PTHREAD_MUTEX_STALLED PTHREAD_MUTEX_STALLED_NP PTHREAD_MUTEX_TIMED_NP PTHREAD_ONCE_INIT PTHREAD_PRIO_INHERIT PTHREAD_PRIO_NONE "
     "PTHREAD_PRIO_PROTECT PTHREAD_PROCESS_PRIVATE PTHREAD_PROCESS_SHARED PTHREAD_RWLOCK_DEFAULT_NP PTHREAD_RWLOCK_INITIALIZER "
     "PTHREAD_RWLOCK_PREFER_READER_NP PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP PTHREAD_RWLOCK_PREFER_WRITER_NP "
     "PTHREAD_SCOPE_PROCESS PTHREAD_SCOPE_SYSTEM PTHREAD_STACK_MIN PTRDIFF_MAX PTRDIFF_MIN PTRDIFF_WIDTH RAND_MAX RENAME_EXCHANGE "
     "RENAME_NOREPLACE RENAME_WHITEOUT RE_DUP_MAX RTSIG_MAX R_OK SA_INTERRUPT SA_NOCLDSTOP SA_NOCLDWAIT SA_NODEFER SA_NOMASK "
     "SA_ONESHOT SA_ONSTACK SA_RESETHAND SA_RESTART SA_SIGINFO SA_STACK SCHAR_MAX SCHAR_MIN SCHED_FIFO SCHED_OTHER SCHED_RR SEEK_CUR "
     "SEEK_DATA SEEK_END SEEK_HOLE SEEK_SET SEGV_ACCADI SEGV_ACCERR SEGV_ADIDERR SEGV_ADIPERR SEGV_BNDERR SEGV_MAPERR SEGV_MTEAERR "
     "SEGV_MTESERR SEGV_PKUERR SEM_VALUE_MAX SHRT_MAX SHRT_MIN SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGEV_NONE SIGEV_SIGNAL "
     "SIGEV_THREAD SIGEV_THREAD_ID SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX "
     "SIGRTMIN SIGSEGV SIGSTKFLT SIGSTKSZ SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM "
     "SIGWINCH SIGXCPU SIGXFSZ SIG_ATOMIC_MAX SIG_ATOMIC_MIN SIG_ATOMIC_WIDTH SIG_BLOCK SIG_DFL SIG_ERR SIG_IGN SIG_SETMASK "
     "SIG_UNBLOCK SIZE_MAX SIZE_WIDTH SI_ASYNCIO SI_ASYNCNL SI_DETHREAD SI_KERNEL SI_MESGQ SI_QUEUE SI_SIGIO SI_TIMER SI_TKILL SI_USER "
     "SSIZE_MAX SS_DISABLE SS_ONSTACK STDERR_FILENO STDIN_FILENO STDOUT_FILENO S_BLKSIZE S_IEXEC S_IFBLK S_IFCHR S_IFDIR S_IFIFO "
     "S_IFLNK S_IFMT S_IFREG S_IFSOCK S_IREAD S_IRGRP S_IROTH S_IRUSR S_IRWXG S_IRWXO S_IRWXU S_ISBLK S_ISCHR S_ISDIR S_ISFIFO S_ISGID "
     "S_ISLNK S_ISREG S_ISSOCK S_ISUID S_ISVTX S_IWGRP S_IWOTH S_IWRITE S_IWUSR S_IXGRP S_IXOTH S_IXUSR S_TYPEISMQ S_TYPEISSEM "
     "S_TYPEISSHM TIMER_ABSTIME TIME_UTC TMP_MAX TSS_DTOR_ITERATIONS TTY_NAME_MAX UCHAR_MAX UINT16_C UINT16_MAX UINT16_WIDTH UINT32_C "
     "UINT32_MAX UINT32_WIDTH UINT64_C UINT64_MAX UINT64_WIDTH UINT8_C UINT8_MAX UINT8_WIDTH UINTMAX_C UINTMAX_MAX UINTMAX_WIDTH "
     "UINTPTR_MAX UINTPTR_WIDTH UINT_FAST16_MAX UINT_FAST16_WIDTH UINT_FAST32_MAX UINT_FAST32_WIDTH UINT_FAST64_MAX UINT_FAST64_WIDTH "
     "UINT_FAST8_MAX UINT_FAST8_WIDTH UINT_LEAST16_MAX UINT_LEAST16_WIDTH UINT_LEAST32_MAX UINT_LEAST32_WIDTH UINT_LEAST64_MAX "
     "UINT_LEAST64_WIDTH UINT_LEAST8_MAX UINT_LEAST8_WIDTH UINT_MAX ULLONG_MAX ULONG_MAX USHRT_MAX UTIME_NOW UTIME_OMIT WCHAR_MAX "
     "WCHAR_MIN WCHAR_WIDTH WCONTINUED WEOF WEXITED WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WINT_MAX WINT_MIN "
     "WINT_WIDTH WNOHANG WNOWAIT WSTOPPED WSTOPSIG WTERMSIG WUNTRACED W_OK XATTR_LIST_MAX XATTR_NAME_MAX XATTR_SIZE_MAX X_OK "},
    {"a function, a type or a variable of the C library", " "
     "L_ctermid L_cuserid L_tmpnam PRId16 PRId32 PRId64 PRId8 PRIdFAST16 PRIdFAST32 PRIdFAST64 PRIdFAST8 PRIdLEAST16 PRIdLEAST32 "
     "PRIdLEAST64 PRIdLEAST8 PRIdMAX PRIdPTR PRIi16 PRIi32 PRIi64 PRIi8 PRIiFAST16 PRIiFAST32 PRIiFAST64 PRIiFAST8 PRIiLEAST16 "
     "PRIiLEAST32 PRIiLEAST64 PRIiLEAST8 PRIiMAX PRIiPTR PRIo16 PRIo32 PRIo64 PRIo8 PRIoFAST16 PRIoFAST32 PRIoFAST64 PRIoFAST8 "
     "PRIoLEAST16 PRIoLEAST32 PRIoLEAST64 PRIoLEAST8 PRIoMAX PRIoPTR PRIu16 PRIu32 PRIu64 PRIu8 PRIuFAST16 PRIuFAST32 PRIuFAST64 "
     "PRIuFAST8 PRIuLEAST16 PRIuLEAST32 PRIuLEAST64 PRIuLEAST8 PRIuMAX PRIuPTR PRIx16 PRIx32 PRIx64 PRIx8 PRIxFAST16 PRIxFAST32 "
     "PRIxFAST64 PRIxFAST8 PRIxLEAST16 PRIxLEAST32 PRIxLEAST64 PRIxLEAST8 PRIxMAX PRIxPTR P_tmpdir SCNd16 SCNd32 SCNd64 SCNd8 "
     "SCNdFAST16 SCNdFAST32 SCNdFAST64 SCNdFAST8 SCNdLEAST16 SCNdLEAST32 SCNdLEAST64 SCNdLEAST8 SCNdMAX SCNdPTR SCNi16 SCNi32 SCNi64 "
     "SCNi8 SCNiFAST16 SCNiFAST32 SCNiFAST64 SCNiFAST8 SCNiLEAST16 SCNiLEAST32 SCNiLEAST64 SCNiLEAST8 SCNiMAX SCNiPTR SCNo16 SCNo32 "
     "SCNo64 SCNo8 SCNoFAST16 SCNoFAST32 SCNoFAST64 SCNoFAST8 SCNoLEAST16 SCNoLEAST32 SCNoLEAST64 SCNoLEAST8 SCNoMAX SCNoPTR SCNu16 "
     "SCNu32 SCNu64 SCNu8 SCNuFAST16 SCNuFAST32 SCNuFAST64 SCNuFAST8 SCNuLEAST16 SCNuLEAST32 SCNuLEAST64 SCNuLEAST8 SCNuMAX SCNuPTR "
     "SCNx16 SCNx32 SCNx64 SCNx8 SCNxFAST16 SCNxFAST32 SCNxFAST64 SCNxFAST8 SCNxLEAST16 SCNxLEAST32 SCNxLEAST64 SCNxLEAST8 SCNxMAX "
     "SCNxPTR a64l abort abs access acct acos acosf acosh acoshf acoshl acosl alarm aligned_alloc arc4random arc4random_buf "
     "arc4random_uniform asctime asctime_r asin asinf asinh asinhf asinhl asinl asprintf at_quick_exit atan atan2 atan2f atan2l atanf "
     "atanh atanhf atanhl atanl atexit atof atoi atol atoll atomic_bool atomic_char atomic_char16_t atomic_char32_t "
     "atomic_compare_exchange_strong atomic_compare_exchange_strong_explicit atomic_compare_exchange_weak "
     "atomic_compare_exchange_weak_explicit atomic_exchange atomic_exchange_explicit atomic_fetch_add atomic_fetch_add_explicit "
     "atomic_fetch_and atomic_fetch_and_explicit atomic_fetch_or atomic_fetch_or_explicit atomic_fetch_sub atomic_fetch_sub_explicit "
     "atomic_fetch_xor atomic_fetch_xor_explicit atomic_flag atomic_flag_clear atomic_flag_clear_explicit atomic_flag_test_and_set "
     "atomic_flag_test_and_set_explicit atomic_init atomic_int atomic_int_fast16_t atomic_int_fast32_t atomic_int_fast64_t "
     "atomic_int_fast8_t atomic_int_least16_t atomic_int_least32_t atomic_int_least64_t atomic_int_least8_t atomic_intmax_t "
     "atomic_intptr_t atomic_is_lock_free atomic_llong atomic_load atomic_load_explicit atomic_long atomic_ptrdiff_t atomic_schar "
     "atomic_short atomic_signal_fence atomic_size_t atomic_store atomic_store_explicit atomic_thread_fence atomic_uchar atomic_uint "
     "atomic_uint_fast16_t atomic_uint_fast32_t atomic_uint_fast64_t atomic_uint_fast8_t atomic_uint_least16_t atomic_uint_least32_t "
     "atomic_uint_least64_t atomic_uint_least8_t atomic_uintmax_t atomic_uintptr_t atomic_ullong atomic_ulong atomic_ushort "
     "atomic_wchar_t basename bcmp bcopy be16toh be32toh be64toh blkcnt64_t blkcnt_t blksize_t brk bsearch btowc bzero c16rtomb "
     "c32rtomb cabs cabsf cabsl cacos cacosf cacosh cacoshf cacoshl cacosl caddr_t call_once calloc canonicalize_file_name carg cargf "
     "cargl casin casinf casinh casinhf casinhl casinl catan catanf catanh catanhf catanhl catanl cbrt cbrtf cbrtl ccos ccosf ccosh "
     "ccoshf ccoshl ccosl ceil ceilf ceill cexp cexpf cexpl chdir chmod chown chroot cimag cimagf cimagl clearenv clearerr "
     "clearerr_unlocked clock clock_getcpuclockid clock_getres clock_gettime clock_nanosleep clock_settime clock_t clockid_t clog "
     "clogf clogl close closefrom cnd_broadcast cnd_destroy cnd_init cnd_signal cnd_t cnd_timedwait cnd_wait comparison_fn_t confstr "
     "conj conjf conjl cookie_close_function_t cookie_io_functions_t cookie_read_function_t cookie_seek_function_t "
     "cookie_write_function_t copysign copysignf copysignl cos cosf cosh coshf coshl cosl cpow cpowf cpowl cproj cprojf cprojl "
     "cpu_set_t creal crealf creall creat crypt csin csinf csinh csinhf csinhl csinl csqrt csqrtf csqrtl ctan ctanf ctanh ctanhf "
     "ctanhl ctanl ctermid ctime ctime_r cuserid daddr_t daemon daylight dev_t difftime div div_t double_t dprintf drand48 "
     "drand48_data drand48_r drem dremf dreml dup dup2 duplocale dysize ecvt ecvt_r endusershell erand48 erand48_r erf erfc erfcf "
     "erfcl erff erfl error_t execl execle execlp execv execve execvp exit exp exp2 exp2f exp2l expf expl explicit_bzero expm1 expm1f "
     "expm1l fabs fabsf fabsl faccessat fchdir fchmod fchmodat fchown fchownat fclose fcloseall fcvt fcvt_r fd_mask fd_set fdatasync "
     "fdim fdimf fdiml fdopen feclearexcept fegetenv fegetexceptflag fegetround feholdexcept fenv_t feof feof_unlocked feraiseexcept "
     "ferror ferror_unlocked fesetenv fesetexceptflag fesetround fetestexcept feupdateenv fexcept_t fexecve fflush fflush_unlocked ffs "
     "ffsl ffsll fgetc fgetc_unlocked fgetpos fgetpos64 fgets fgets_unlocked fgetwc fgetwc_unlocked fgetws fgetws_unlocked fileno "
     "fileno_unlocked finite finitef finitel float_t flock flockfile floor floorf floorl fma fmaf fmal fmax fmaxf fmaxl fmemopen fmin "
     "fminf fminl fmod fmodf fmodl fopen fopen64 fopencookie fork fpathconf fpclassify fpos64_t fpos_t fpregset_t fprintf fputc "
     "fputc_unlocked fputs fputs_unlocked fputwc fputwc_unlocked fputws fputws_unlocked fread fread_unlocked free freelocale freopen "
     "freopen64 frexp frexpf frexpl fsblkcnt64_t fsblkcnt_t fscanf fseek fseeko fseeko64 fsetpos fsetpos64 fsfilcnt64_t fsfilcnt_t "
     "fsid_t fstat fstatat fsync ftell ftello ftello64 ftruncate ftrylockfile funlockfile futimens fwide fwprintf fwrite "
     "fwrite_unlocked fwscanf gamma gammaf gammal gcvt getc getc_unlocked getchar getchar_unlocked getcwd getdelim getdomainname "
     "getdtablesize getegid getentropy getenv geteuid getgid getgroups gethostid gethostname getline getloadavg getlogin getlogin_r "
     "getpagesize getpass getpgid getpgrp getpid getppid getpt getsid getsubopt getuid getusershell getw getwc getwc_unlocked getwchar "
     "getwchar_unlocked getwd gid_t gmtime gmtime_r grantpt greg_t gregset_t gsignal htobe16 htobe32 htobe64 htole16 htole32 htole64 "
     "hypot hypotf hypotl id_t ilogb ilogbf ilogbl imaxabs imaxdiv imaxdiv_t index initstate initstate_r ino64_t ino_t int16_t int32_t "
     "int64_t int8_t int_fast16_t int_fast32_t int_fast64_t int_fast8_t int_least16_t int_least32_t int_least64_t int_least8_t "
     "intmax_t intptr_t isalnum isalnum_l isalpha isalpha_l isascii isascii_l isatty isblank isblank_l iscntrl iscntrl_l isctype "
     "isdigit isdigit_l isfinite isgraph isgraph_l isgreater isgreaterequal isinf isinff isinfl isless islessequal islessgreater "
     "islower islower_l isnan isnanf isnanl isnormal isprint isprint_l ispunct ispunct_l isspace isspace_l isunordered isupper "
     "isupper_l iswalnum iswalnum_l iswalpha iswalpha_l iswblank iswblank_l iswcntrl iswcntrl_l iswctype iswctype_l iswdigit "
     "iswdigit_l iswgraph iswgraph_l iswlower iswlower_l iswprint iswprint_l iswpunct iswpunct_l iswspace iswspace_l iswupper "
     "iswupper_l iswxdigit iswxdigit_l isxdigit isxdigit_l itimerspec j0 j0f j0l j1 j1f j1l jmp_buf jn jnf jnl jrand48 jrand48_r key_t "
     "kill kill_dependency killpg l64a labs lchmod lchown lcong48 lcong48_r lconv ldexp ldexpf ldexpl ldiv ldiv_t le16toh le32toh "
     "le64toh lgamma lgamma_r lgammaf lgammaf_r lgammal lgammal_r linkat llabs lldiv lldiv_t llrint llrintf llrintl llround llroundf "
     "llroundl locale_t localeconv localtime localtime_r lockf loff_t log log10 log10f log10l log1p log1pf log1pl log2 log2f log2l "
     "logb logbf logbl logf logl longjmp lrand48 lrand48_r lrint lrintf lrintl lround lroundf lroundl lseek lstat math_errhandling "
     "max_align_t mblen mbrlen mbrtoc16 mbrtoc32 mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstate_t mbstowcs mbtowc mcontext_t memccpy "
     "memchr memcmp memcpy memfrob memmem memmove memory_order memory_order_acq_rel memory_order_acquire memory_order_consume "
     "memory_order_relaxed memory_order_release memory_order_seq_cst mempcpy memrchr memset mkdir mkdirat mkdtemp mkfifo mkfifoat "
     "mknod mknodat mkostemp mkostemp64 mkostemps mkostemps64 mkstemp mkstemp64 mkstemps mkstemps64 mktemp mktime mode_t modf modff "
     "modfl mrand48 mrand48_r mtx_destroy mtx_init mtx_lock mtx_plain mtx_recursive mtx_t mtx_timed mtx_timedlock mtx_trylock "
     "mtx_unlock nan nanf nanl nanosleep nearbyint nearbyintf nearbyintl newlocale nextafter nextafterf nextafterl nexttoward "
     "nexttowardf nexttowardl nice nlink_t noreturn nrand48 nrand48_r obstack_printf obstack_vprintf off64_t off_t offsetof on_exit "
     "once_flag open open_memstream open_wmemstream openat optarg opterr optind optopt pathconf pause pclose perror pid_t pipe popen "
     "posix_fadvise posix_fallocate posix_memalign posix_openpt pow powf powl pread profil program_invocation_name "
     "program_invocation_short_name pselect psiginfo psignal pthread_atfork pthread_attr_destroy pthread_attr_getdetachstate "
     "pthread_attr_getguardsize pthread_attr_getinheritsched pthread_attr_getschedparam pthread_attr_getschedpolicy "
     "pthread_attr_getscope pthread_attr_getstack pthread_attr_getstackaddr pthread_attr_getstacksize pthread_attr_init "
     "pthread_attr_setdetachstate pthread_attr_setguardsize pthread_attr_setinheritsched pthread_attr_setschedparam "
     "pthread_attr_setschedpolicy pthread_attr_setscope pthread_attr_setstack pthread_attr_setstackaddr pthread_attr_setstacksize "
     "pthread_attr_t pthread_barrier_destroy pthread_barrier_init pthread_barrier_t pthread_barrier_wait pthread_barrierattr_destroy "
     "pthread_barrierattr_getpshared pthread_barrierattr_init pthread_barrierattr_setpshared pthread_barrierattr_t pthread_cancel "
     "pthread_cleanup_pop pthread_cleanup_push pthread_cond_broadcast pthread_cond_destroy pthread_cond_init pthread_cond_signal "
     "pthread_cond_t pthread_cond_timedwait pthread_cond_wait pthread_condattr_destroy pthread_condattr_getclock "
     "pthread_condattr_getpshared pthread_condattr_init pthread_condattr_setclock pthread_condattr_setpshared pthread_condattr_t "
     "pthread_create pthread_detach pthread_equal pthread_exit pthread_getcpuclockid pthread_getschedparam pthread_getspecific "
     "pthread_join pthread_key_create pthread_key_delete pthread_key_t pthread_kill pthread_mutex_consistent pthread_mutex_destroy "
     "pthread_mutex_getprioceiling pthread_mutex_init pthread_mutex_lock pthread_mutex_setprioceiling pthread_mutex_t "
     "pthread_mutex_timedlock pthread_mutex_trylock pthread_mutex_unlock pthread_mutexattr_destroy pthread_mutexattr_getprioceiling "
     "pthread_mutexattr_getprotocol pthread_mutexattr_getpshared pthread_mutexattr_getrobust pthread_mutexattr_gettype "
     "pthread_mutexattr_init pthread_mutexattr_setprioceiling pthread_mutexattr_setprotocol pthread_mutexattr_setpshared "
     "pthread_mutexattr_setrobust pthread_mutexattr_settype pthread_mutexattr_t pthread_once pthread_once_t pthread_rwlock_destroy "
     "pthread_rwlock_init pthread_rwlock_rdlock pthread_rwlock_t pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock "
     "pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock pthread_rwlockattr_destroy "
     "pthread_rwlockattr_getkind_np pthread_rwlockattr_getpshared pthread_rwlockattr_init pthread_rwlockattr_setkind_np "
     "pthread_rwlockattr_setpshared pthread_rwlockattr_t pthread_self pthread_setcancelstate pthread_setcanceltype "
     "pthread_setschedparam pthread_setschedprio pthread_setspecific pthread_sigmask pthread_spin_destroy pthread_spin_init "
     "pthread_spin_lock pthread_spin_trylock pthread_spin_unlock pthread_spinlock_t pthread_t pthread_testcancel ptrdiff_t ptsname "
     "ptsname_r putc putc_unlocked putchar putchar_unlocked putenv puts putw putwc putwc_unlocked putwchar putwchar_unlocked pwrite "
     "qecvt qecvt_r qfcvt qfcvt_r qgcvt qsort qsort_r quad_t quick_exit raise rand rand_r random random_data random_r rawmemchr read "
     "readlink readlinkat realloc reallocarray realpath register_t remainder remainderf remainderl remove remquo remquof remquol "
     "rename renameat renameat2 revoke rewind rindex rint rintf rintl rmdir round roundf roundl rpmatch sa_handler sa_sigaction sbrk "
     "scalb scalbf scalbl scalbln scalblnf scalblnl scalbn scalbnf scalbnl scanf sched_get_priority_max sched_get_priority_min "
     "sched_getparam sched_getscheduler sched_param sched_priority sched_rr_get_interval sched_setparam sched_setscheduler sched_yield "
     "secure_getenv seed48 seed48_r select setbuf setbuffer setdomainname setegid setenv seteuid setgid sethostid sethostname "
     "setlinebuf setlocale setlogin setpgid setpgrp setregid setreuid setsid setstate setstate_r setuid setusershell setvbuf si_addr "
     "si_addr_lsb si_arch si_band si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr si_status si_stime si_syscall "
     "si_timerid si_uid si_upper si_utime si_value sig_atomic_t sig_t sigabbrev_np sigaction sigaddset sigaltstack sigblock sigcontext "
     "sigdelset sigdescr_np sigemptyset sigev_notify_attributes sigev_notify_function sigevent sigevent_t sigfillset siggetmask "
     "siginfo_t siginterrupt sigismember sigjmp_buf siglongjmp sigmask signbit signgam significand significandf significandl "
     "sigpending sigprocmask sigqueue sigreturn sigset_t sigsetjmp sigsetmask sigstack sigsuspend sigtimedwait sigval sigval_t sigwait "
     "sigwaitinfo sin sinf sinh sinhf sinhl sinl size_t sleep snprintf socklen_t sprintf sqrt sqrtf sqrtl srand srand48 srand48_r "
     "srandom srandom_r sscanf ssignal ssize_t st_atime st_ctime st_mtime stack_t stat stderr stdin stdout stpcpy stpncpy strcasecmp "
     "strcasecmp_l strcasestr strcat strchr strchrnul strcmp strcoll strcoll_l strcpy strcspn strdup strdupa strerror strerror_l "
     "strerror_r strerrordesc_np strerrorname_np strfromd strfromf strfromf32 strfromf32x strfromf64 strfromf64x strfroml strfry "
     "strftime strftime_l strlen strncasecmp strncasecmp_l strncat strncmp strncpy strndup strndupa strnlen strpbrk strrchr strsep "
     "strsignal strspn strstr strtod strtod_l strtof strtof32 strtof32_l strtof32x strtof32x_l strtof64 strtof64_l strtof64x "
     "strtof64x_l strtof_l strtoimax strtok strtok_r strtol strtol_l strtold strtold_l strtoll strtoll_l strtoq strtoul strtoul_l "
     "strtoull strtoull_l strtoumax strtouq strverscmp strxfrm strxfrm_l suseconds_t swprintf swscanf symlink symlinkat sync sysconf "
     "system tan tanf tanh tanhf tanhl tanl tcgetpgrp tcsetpgrp tempnam tgamma tgammaf tgammal thrd_busy thrd_create thrd_current "
     "thrd_detach thrd_equal thrd_error thrd_exit thrd_join thrd_nomem thrd_sleep thrd_start_t thrd_success thrd_t thrd_timedout "
     "thrd_yield time_t timegm timelocal timer_create timer_delete timer_getoverrun timer_gettime timer_settime timer_t timespec "
     "timespec_get timeval timezone tm tmpfile tmpfile64 tmpnam tmpnam_r toascii toascii_l tolower tolower_l toupper toupper_l "
     "towctrans towctrans_l towlower towlower_l towupper towupper_l trunc truncate truncf truncl tss_create tss_delete tss_dtor_t "
     "tss_get tss_set tss_t ttyname ttyname_r ttyslot tzname tzset u_char u_int u_int16_t u_int32_t u_int64_t u_int8_t u_long u_quad_t "
     "u_short ualarm ucontext_t uid_t uint uint16_t uint32_t uint64_t uint8_t uint_fast16_t uint_fast32_t uint_fast64_t uint_fast8_t "
     "uint_least16_t uint_least32_t uint_least64_t uint_least8_t uintmax_t uintptr_t ulong umask ungetc ungetwc unlink unlinkat "
     "unlockpt unsetenv useconds_t uselocale ushort usleep utimensat va_arg va_copy va_end va_list va_start valloc vasprintf vdprintf "
     "vfork vfprintf vfscanf vfwprintf vfwscanf vhangup vprintf vscanf vsnprintf vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf "
     "wcpcpy wcpncpy wcrtomb wcscasecmp wcscasecmp_l wcscat wcschr wcschrnul wcscmp wcscoll wcscoll_l wcscpy wcscspn wcsdup wcsftime "
     "wcsftime_l wcslen wcsncasecmp wcsncasecmp_l wcsncat wcsncmp wcsncpy wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr "
     "wcstod wcstod_l wcstof wcstof32 wcstof32_l wcstof32x wcstof32x_l wcstof64 wcstof64_l wcstof64x wcstof64x_l wcstof_l wcstoimax "
     "wcstok wcstol wcstol_l wcstold wcstold_l wcstoll wcstoll_l wcstombs wcstoq wcstoul wcstoul_l wcstoull wcstoull_l wcstoumax "
     "wcstouq wcswcs wcswidth wcsxfrm wcsxfrm_l wctob wctomb wctrans wctrans_l wctrans_t wctype_l wctype_t wcwidth wint_t wmemchr "
     "wmemcmp wmemcpy wmemmove wmempcpy wmemset wprintf write wscanf y0 y0f y0l y1 y1f y1l yn ynf ynl "}
};
// clang-format on

} // namespace

std::vector<ReservedNames> reserved_names() {
    return {std::begin(rows), std::end(rows)};
}

std::string refuse_name(const std::string &name) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const std::string refusal = "name: found '" + name + "', expected ";
    bool good = !name.empty() && letter(name[0]) && name.find("__") == std::string::npos;
    for (const char c : name) {
        good = good && (letter(c) || digit(c) || c == '_');
    }
    if (!good) {
        return refusal + "a C identifier without leading or double underscores";
    }
    for (const char *prefix : {"polyhead_", "POLYHEAD_", "halide_"}) {
        if (name.rfind(prefix, 0) == 0) {
            return refusal + "a name that does not begin with " + prefix + ", as those of this library do";
        }
    }
    for (const ReservedNames &row : rows) {
        if (row.words.find(' ' + name + ' ') != std::string_view::npos) {
            return refusal + "another name: it is " + std::string(row.what);
        }
    }
    return "";
}

} // namespace polyhead::tools
