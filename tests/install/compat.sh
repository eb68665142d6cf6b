# What the compatibility modules install, as patterns of paths below the prefix; install_test.sh and core_only_test.sh
# read it. A path belongs to them if it matches one.
compat_patterns='/libmultiverso\.so$|/include/multiverso/|/AI/MXNet|-packages/multiverso/|/python-compat/'
compat_patterns+='|/lua/[0-9.]+/(multiverso|ipc|distlearn)/|/libipc\.lua$|/polyverso/ipc(_values\.lua|\.so)$|/lua-compat/'
