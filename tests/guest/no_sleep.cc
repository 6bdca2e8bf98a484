// sleep() that returns at once, for LD_PRELOAD. Both ends of a test of perftest sleep for a second
// when they are connected, before they exchange their versions over that connection. Nothing
// depends on it but the time of a hundred tests.
extern "C" unsigned sleep(unsigned /*seconds*/) { return 0; }
