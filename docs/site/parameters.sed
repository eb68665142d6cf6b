# Without "@file", Doxygen drops the comment of the whole header.
1s%^/\*\* %/** @file\n *  %
# The headers include each other, and Doxygen would find most of them included already, and so empty.
s/^#ifndef POLYVERSO_[A-Z]*_H$/#if 1/
# Breathe reads one name for each "@param": "@param a, b  text" becomes two lines.
s/^( \*  @param )([a-z_]+), (([a-z_]+, )*[a-z_]+)  (.*[^ *\/])( \*\/)?$/\1\2  see below\n\1\3  \5\6/
# A list of statuses, "MV_EINTR  after a signal" in each line, becomes a list of Doxygen's.
s/^( \*  @return) (MV_[A-Z]+(, MV_[A-Z]+)*)  +(.*)$/\1\n *          - \2: \4/
s/^( \*  {2,})(MV_[A-Z]+(, MV_[A-Z]+)*)  +([^ ].*)$/\1- \2: \4/
s/^( \*  {2,})(MV_[A-Z]+(, MV_[A-Z]+)+)( \*\/)?$/\1- \2\4/
/\n/ {
  P
  D
}
