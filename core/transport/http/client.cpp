#include "transport/http/client.hpp"

#include <unistd.h>

#include "base/module_file.hpp"
#include "transport/http/module.hpp"

namespace mv::transport {

base::Result<std::unique_ptr<HttpClient>> make_http_client(const HttpTarget& target) {
  for (const std::string* file : {&target.ca, &target.cert, &target.key})
    if (!file->empty() && ::access(file->c_str(), R_OK) != 0) return base::error(MV_EINVAL, "the file {} can't be read", *file);
  static const base::Result<void*> kMake = base::load_from_module(kHttpModuleFile, kHttpClientEntry, "etcd");
  if (!kMake.ok()) return kMake.status();
  base::Result<std::unique_ptr<HttpClient>> made = base::Status();
  reinterpret_cast<MakeHttpClient>(kMake.value())(target, made);
  return made;
}

}  // namespace mv::transport
