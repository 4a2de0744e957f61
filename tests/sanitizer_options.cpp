// What ThreadSanitizer is told by programs that fork: threads of the parent are not missed in a child, and nothing waits at its end.
#if defined(__SANITIZE_THREAD__)
extern "C" const char *__tsan_default_options(); // the sanitizer has no header that declares it

extern "C" const char *__tsan_default_options() {
    return "report_thread_leaks=0:atexit_sleep_ms=0";
}
#endif
