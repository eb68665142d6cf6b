// For the precompiled header that the tests share: a header is precompiled for a program that is never built.
int main() { return 0; }
