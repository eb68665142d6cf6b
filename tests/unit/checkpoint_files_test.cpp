// core/shard/checkpoint: files are written, read back, kept, and refused when they are damaged.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/directory.hpp"
#include "checkpoint/examine.hpp"
#include "checkpoint/inspect.hpp"
#include "checkpoint/restore.hpp"
#include "shard/updater/updater.hpp"

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

#include "sanitized.hpp"

namespace {

namespace fs = std::filesystem;
using namespace mv;
using namespace mv::checkpoint;
using shard::Range;
using shard::Rows;
using shard::Spec;

constexpr uint64_t kCols = 3;
const std::atomic<bool> kNotGivenUp{false};

/// A directory for one test.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "polyverso-checkpoint-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Rows with recognisable values: row r of array a has r * 10 + a + col / 8. Two rows at a time.
class Invented final : public shard::Snapshot {
 public:
  Invented(Range rows, size_t states, bool keyed) : rows_(rows), states_(states), keyed_(keyed), at_(rows.first) {}
  uint64_t rows() const override { return rows_.count; }
  size_t states() const override { return states_; }
  Rows next() override {
    Rows out;
    out.first = at_;
    out.count = std::min<uint64_t>(2, rows_.end() - at_);
    arrays_.assign(1 + states_, {});
    for (uint64_t row = at_; row < at_ + out.count; ++row) {
      if (keyed_) out.ids.push_back(static_cast<int64_t>(row * 7));
      for (size_t a = 0; a < arrays_.size(); ++a)
        for (uint64_t col = 0; col < kCols; ++col) arrays_[a].push_back(value(row, a, col));
    }
    at_ += out.count;
    out.values = std::as_bytes(std::span(arrays_[0]));
    for (size_t a = 1; a < arrays_.size(); ++a) out.states.push_back(std::as_bytes(std::span(arrays_[a])));
    return out;
  }
  static float value(uint64_t row, size_t array, uint64_t col) {
    return static_cast<float>(row * 10 + array) + static_cast<float>(col) / 8;
  }

 private:
  const Range rows_;
  const size_t states_;
  const bool keyed_;
  uint64_t at_;
  std::vector<std::vector<float>> arrays_;
};

TableEntry entry_of(const std::string& name, int32_t kind, const char* updater) {
  TableEntry entry;
  entry.spec.name = name;
  entry.spec.kind = kind;
  entry.spec.rows = kind == MV_KEYVALUE ? 0 : kind == MV_SPARSE ? 1000 : 11;
  entry.spec.cols = kCols;
  entry.spec.updater = entry.updater = shard::parse_updater(updater).value();
  entry.spec.seed = UINT64_MAX;
  entry.spec.initial = 0.1;
  entry.clock = 42;
  return entry;
}

const char* const kOddName = "ж\"\n/../w.ids";

std::vector<TableEntry> entries() {
  return {entry_of("w", MV_SPARSE, "adagrad rate=0.3"), entry_of("w.ids", MV_MATRIX, "momentum rate=0.1"),
          entry_of(kOddName, MV_KEYVALUE, "add"), entry_of("__metadata__", MV_MATRIX, "add")};
}

std::vector<SavedTable> saved_tables(uint64_t server, uint64_t servers) {
  std::vector<SavedTable> tables;
  for (const TableEntry& entry : entries()) {
    const bool keyed = entry.spec.is_keyed();
    const Range rows = shard::part_of(11, servers, server);
    const size_t states = shard::make_updater(entry.updater, MV_F32)->states();
    tables.push_back({entry, keyed ? Range{} : rows, std::make_unique<Invented>(rows, states, keyed)});
  }
  return tables;
}

/// Writes a whole checkpoint of `servers` servers; returns its path.
std::string save(const std::string& directory, uint64_t servers) {
  auto place = begin_checkpoint(directory);
  assert_true(place.ok());
  Manifest manifest;
  manifest.number = place.value().number;
  manifest.tables = entries();
  for (uint64_t server = 0; server < servers; ++server) {
    auto tables = saved_tables(server, servers);
    auto file = write_part(place.value().path, manifest.number, server, servers, false, tables, kNotGivenUp);
    assert_true(file.ok());
    manifest.files.push_back(file.value());
  }
  assert_true(complete_checkpoint(place.value().path, manifest).ok());
  return place.value().path;
}

std::vector<char> slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void spill(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// The checkpoint is refused, with a reason that contains `part`; inspecting it reports the same.
void expect_damage(const std::string& path, const char* part) {
  const auto found = open_sound(path, {}, kNotGivenUp);
  if (found.ok() || found.status().text().find(part) == std::string::npos)
    print_error("expected ...%s..., got %s\n", part, found.ok() ? "a sound checkpoint" : found.status().text().c_str());
  assert_true(!found.ok() && found.status().code() == MV_EINVAL &&
              found.status().text().find(part) != std::string::npos);
  const auto report = inspect(path);
  assert_true(report.ok() && report.value().find("\"damage\": [\n") != std::string::npos);
}

// ---- tests

void checkpoints_round_trip(void**) {
  const Scratch scratch;
  const auto found = open_sound(save(scratch.path(), 3), {}, kNotGivenUp);
  assert_true(found.ok());
  assert_int_equal(found.value().manifest->tables.size(), 4);
  const auto& names = found.value().manifest->tables;
  assert_string_equal(names[2].spec.name.c_str(), kOddName);
  assert_true(names[0].spec.seed == UINT64_MAX && names[0].spec.initial == 0.1 && names[0].clock == 42);
  assert_true(names[0].updater == shard::parse_updater("adagrad rate=0.3").value());
  for (size_t t = 0; t < names.size(); ++t) {
    std::map<uint64_t, int> seen;
    for (const auto& file : found.value().files) {
      const auto& table = file->part().tables[t];
      const auto read = file->read(table, {0, 1000}, [&](const Rows& rows) {
        for (uint64_t i = 0; i < rows.count; ++i) {
          const uint64_t row = rows.ids.empty() ? rows.first + i : static_cast<uint64_t>(rows.ids[i]) / 7;
          ++seen[row];
          for (size_t a = 0; a <= rows.states.size(); ++a) {
            float shown[kCols];
            std::memcpy(shown, (a == 0 ? rows.values : rows.states[a - 1]).data() + i * sizeof shown, sizeof shown);
            for (uint64_t col = 0; col < kCols; ++col) assert_true(shown[col] == Invented::value(row, a, col));
          }
        }
        return base::Status();
      });
      assert_true(read.ok());
    }
    assert_int_equal(seen.size(), 11);
    for (const auto& [row, times] : seen) assert_int_equal(times, 1);
  }
}

void a_real_shard_is_restored_on_another_number_of_servers(void**) {
  const Scratch scratch;
  TableEntry entry = entry_of("m", MV_MATRIX, "adagrad rate=0.3");
  auto place = begin_checkpoint(scratch.path());
  Manifest manifest{place.value().number, 0, {}, {entry}};
  for (uint64_t server = 0; server < 2; ++server) {
    auto shard = shard::Shard::make(entry.spec, {2, server, false});
    assert_true(shard.ok());
    std::vector<float> ones(shard.value()->elements(), static_cast<float>(server + 1));
    shard.value()->change(shard::Write::Add, 0, 0, ones.size(), reinterpret_cast<const std::byte*>(ones.data()));
    std::vector<SavedTable> tables;
    tables.push_back({entry, shard.value()->rows(), shard.value()->snapshot().value()});
    auto file = write_part(place.value().path, manifest.number, server, 2, false, tables, kNotGivenUp);
    assert_true(file.ok());
    manifest.files.push_back(file.value());
  }
  assert_true(complete_checkpoint(place.value().path, manifest).ok());
  const auto found = open_sound(place.value().path, {}, kNotGivenUp);
  assert_true(found.ok());
  for (uint64_t server = 0; server < 3; ++server) {
    auto shard = shard::Shard::make(entry.spec, {3, server, false});
    assert_true(restore_table(found.value(), entry, *shard.value()).ok());
    std::vector<float> values(shard.value()->elements());
    shard.value()->read(shard::kNoWorker, 0, values.size(), reinterpret_cast<std::byte*>(values.data()));
    for (const float value : values) assert_true(value < 0 && value > -0.31F);  // the first step of adagrad is the rate
    std::vector<float> again(values.size(), 1);
    shard.value()->change(shard::Write::Add, 0, 0, again.size(), reinterpret_cast<const std::byte*>(again.data()));
    std::vector<float> stepped(values.size());
    shard.value()->read(shard::kNoWorker, 0, stepped.size(), reinterpret_cast<std::byte*>(stepped.data()));
    for (size_t i = 0; i < values.size(); ++i)
      assert_true(values[i] - stepped[i] < 0.22F);  // the second step is smaller: the state was loaded
  }
}

void names_that_meet_are_kept_apart(void**) {
  PartLayout part;
  for (const TableEntry& entry : entries()) add_table(part, entry, {0, 5}, 1);
  lay_out(part);
  const std::string text = write_header(part);
  assert_int_equal(text.size() % 4096, 0);
  const auto again = parse_header(std::string_view(text).substr(kLengthBytes), part.file_bytes());
  if (!again.ok()) print_error("%s\n", again.status().text().c_str());
  assert_true(again.ok());
  assert_int_equal(again.value().tables.size(), 4);
  assert_true(write_header(again.value()) == text);
}

/// A store's keys are tables: time and memory grow linearly with their number, not quadratically.
void a_hundred_thousand_tables_fit_into_a_file(void**) {
  constexpr size_t kTables = test::turns(100'000, 3000);
  PartLayout part;
  for (size_t i = 0; i < kTables; ++i) {
    TableEntry entry;
    entry.spec.name = "kv-0/" + std::to_string(i);
    entry.spec.rows = 64;
    entry.spec.flags = MV_MERGE | shard::kStoreKey;
    entry.spec.updater = entry.updater = {shard::kReplacing, {}};
    entry.spec.home = static_cast<uint32_t>(i * 2'654'435'761u | 1);
    entry.clock = 1000 + i;
    add_table(part, entry, {0, 64}, 0);
  }
  lay_out(part);
  const std::string text = write_header(part);
  assert_true(text.size() <= kMostHeaderBytes);
  const auto again = parse_header(std::string_view(text).substr(kLengthBytes), part.file_bytes());
  assert_true(again.ok());
  assert_int_equal(again.value().tables.size(), kTables);
  assert_true(write_header(again.value()) == text);
}

void unreadable_files_do_not_count_as_damaged(void**) {
  const Scratch scratch;
  const std::string path = save(scratch.path(), 2);
  rlimit limit{};
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto found = open_sound(path, {}, kNotGivenUp);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
  assert_true(!found.ok() && found.status().code() == MV_ESYSTEM);
  assert_true(open_sound(path, {}, kNotGivenUp).ok());
}

void damage_is_reported(void**) {
  const Scratch scratch;
  const std::string path = save(scratch.path(), 2), first = path + "/server-0.safetensors",
                    manifest = path + "/manifest.json";
  const auto sound = slurp(first), sound_manifest = slurp(manifest);
  const auto found = open_sound(path, {}, kNotGivenUp);
  const uint64_t data = found.value().files[0]->part().data_begin;

  auto broken = sound;
  broken[data + 5] ^= 1;
  spill(first, broken);
  expect_damage(path, "is damaged: its checksum");
  assert_true(open_sound(path, {2, 1}, kNotGivenUp).ok());  // another server's share
  broken = sound;
  broken[20] ^= 1;
  spill(first, broken);
  expect_damage(path, "server-0.safetensors");
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{100}, size_t{data}, sound.size() - 1}) {
    broken.assign(sound.begin(), sound.begin() + static_cast<ptrdiff_t>(bytes));
    spill(first, broken);
    expect_damage(path, "server-0.safetensors");
  }
  broken = sound;
  broken.push_back('x');
  spill(first, broken);
  expect_damage(path, "server-0.safetensors");
  fs::remove(first);
  expect_damage(path, "there is no such file");
  fs::copy_file(path + "/server-1.safetensors", first);
  expect_damage(path, "server-0.safetensors");
  spill(first, sound);
  assert_true(open_sound(path, {}, kNotGivenUp).ok());

  for (size_t bit = 0; bit < sound_manifest.size() * 8; ++bit) {
    broken = sound_manifest;
    broken[bit / 8] ^= static_cast<char>(1 << bit % 8);
    assert_false(parse_manifest({broken.data(), broken.size()}).ok());
  }
  std::string text(sound_manifest.begin(), sound_manifest.end());
  const size_t field = text.rfind(",\n  \"checksum\"");
  const std::string earlier = text.substr(0, field) + "\n}\n";  // by a build whose manifests had no checksum
  assert_true(parse_manifest(earlier).ok());
  spill(manifest, {'{'});
  expect_damage(path, "is not a JSON object");
  text.replace(text.find("\"format\": 1"), 11, "\"format\": 9");
  spill(manifest, {text.begin(), text.end()});
  expect_damage(path, "has format 9");
  fs::remove(manifest);
  const auto none = find_checkpoint(path);
  assert_true(!none.ok() && none.status().code() == MV_EINVAL &&
              none.status().text().find("not completed") != std::string::npos);
  assert_int_equal(find_checkpoint(scratch.path()).status().code(), MV_ENOTFOUND);
  assert_int_equal(inspect(scratch.path() + "/nothing").status().code(), MV_ENOTFOUND);
}

void tensors_must_not_overlap_or_leave_gaps(void**) {
  const auto header = [](uint64_t begin) {
    return fmt::format(
        R"({{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},)"
        R"("b":{{"dtype":"F32","shape":[2],"data_offsets":[{},{}]}}}})",
        begin, begin + 8);
  };
  const auto text_of = [&](uint64_t begin, uint64_t data) {
    const std::string text = header(begin);
    return parse_header(text, kLengthBytes + text.size() + data).status().text();
  };
  assert_non_null(strstr(text_of(4, 12).c_str(), "inside another"));
  assert_non_null(strstr(text_of(9, 17).c_str(), "gap"));
  assert_non_null(strstr(text_of(8, 15).c_str(), "truncated"));
  assert_non_null(strstr(text_of(8, 17).c_str(), "but the tensors cover only 16"));
  assert_non_null(strstr(text_of(8, 16).c_str(), "not of a Polyverso checkpoint"));
}

void rows_that_no_file_has_are_damage(void**) {
  const Scratch scratch;
  const TableEntry entry = entry_of("m", MV_MATRIX, "add");
  for (const auto& [first, part] : std::map<uint64_t, const char*>{{5, "in two files"}, {7, "in no file"}}) {
    auto place = begin_checkpoint(scratch.path());
    Manifest manifest{place.value().number, 0, {}, {entry}};
    for (uint64_t server = 0; server < 2; ++server) {
      const Range rows = server == 0 ? Range{0, 6} : Range{first, 11 - first};
      std::vector<SavedTable> tables;
      tables.push_back({entry, rows, std::make_unique<Invented>(rows, 0, false)});
      auto file = write_part(place.value().path, manifest.number, server, 2, false, tables, kNotGivenUp);
      manifest.files.push_back(file.value());
    }
    assert_true(complete_checkpoint(place.value().path, manifest).ok());
    expect_damage(place.value().path, part);
  }
}

void the_newest_complete_checkpoints_are_kept(void**) {
  const Scratch scratch;
  const std::string directory = scratch.path() + "/made/on/the/way";
  const std::string first = save(directory, 1), second = save(directory, 1);
  auto crashed = begin_checkpoint(directory);
  crashed.value().claim.reset();  // as the kernel does when a process dies
  spill(crashed.value().path + "/server-0.safetensors.part", {'x'});
  const std::string fourth = save(directory, 1);
  const auto under_way = begin_checkpoint(directory);
  assert_true(prune_checkpoints(directory, 2).ok());
  const auto left = list_checkpoints(directory);
  assert_int_equal(left.value().size(), 3);
  assert_string_equal(left.value()[0].path.c_str(), second.c_str());
  assert_string_equal(left.value()[1].path.c_str(), fourth.c_str());
  assert_true(left.value()[1].whole && !left.value()[2].whole);
  assert_string_equal(left.value()[2].path.c_str(), under_way.value().path.c_str());
  assert_string_equal(find_checkpoint(directory).value().c_str(), fourth.c_str());
  assert_false(fs::exists(first));
  assert_true(prune_checkpoints(directory, 0).ok());
  assert_int_equal(list_checkpoints(directory).value().size(), 3);
}

/// A process of another job, which begins a checkpoint; the destructor kills it.
class OtherJob {
 public:
  explicit OtherJob(const std::string& directory) {
    int said[2];
    assert_int_equal(pipe(said), 0);
    child_ = fork();
    if (child_ == 0) {
      const auto place = begin_checkpoint(directory);
      const char done = place.ok() ? 'y' : 'n';
      if (write(said[1], &done, 1) != 1) _exit(1);
      for (;;) pause();
    }
    char done = 0;
    assert_int_equal(read(said[0], &done, 1), 1);
    assert_int_equal(done, 'y');
    close(said[0]), close(said[1]);
  }
  ~OtherJob() { die(); }
  void die() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(std::exchange(child_, -1), nullptr, 0);
  }

 private:
  pid_t child_;
};

void another_jobs_unfinished_checkpoint_stays_while_it_lives(void**) {
  const Scratch scratch;
  OtherJob other(scratch.path());
  const std::string ours = save(scratch.path(), 1);
  assert_true(ours.ends_with("checkpoint-000002"));
  assert_true(prune_checkpoints(scratch.path(), 1).ok());
  assert_int_equal(list_checkpoints(scratch.path()).value().size(), 2);
  other.die();
  assert_true(prune_checkpoints(scratch.path(), 1).ok());
  const auto left = list_checkpoints(scratch.path());
  assert_int_equal(left.value().size(), 1);
  assert_string_equal(left.value()[0].path.c_str(), ours.c_str());
}

/// As if unchanged for this long.
void make_older(const std::string& path, int seconds) {
  const timespec then{std::time(nullptr) - seconds, 0}, times[] = {then, then};
  for (const auto& entry : fs::directory_iterator(path)) assert_int_equal(utimensat(AT_FDCWD, entry.path().c_str(), times, 0), 0);
  assert_int_equal(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

void another_machines_unfinished_checkpoint_stays_for_an_hour(void**) {
  const Scratch scratch;
  const std::string text = "00000000-0000-0000-0000-000000000000\n";
  for (const bool has_claim : {true, false}) {  // without a claim: its job was stopped before it took one
    const std::string path = begin_checkpoint(scratch.path()).value().path;
    if (has_claim) spill(path + "/" + kClaimName, {text.begin(), text.end()});
    else fs::remove(path + "/" + kClaimName);
    save(scratch.path(), 1);
    make_older(path, 1800);
    assert_true(prune_checkpoints(scratch.path(), 1).ok());
    assert_true(fs::exists(path));
    make_older(path, 2 * 3600);
    assert_true(prune_checkpoints(scratch.path(), 1).ok());
    assert_false(fs::exists(path));
  }
}

void two_jobs_never_take_the_same_number(void**) {
  const Scratch scratch;
  const auto one = begin_checkpoint(scratch.path()), other = begin_checkpoint(scratch.path());
  assert_int_equal(one.value().number, 1);
  assert_int_equal(other.value().number, 2);
}

void a_job_that_is_overtaken_keeps_what_it_has_just_saved(void**) {
  const Scratch scratch;
  const auto slow = begin_checkpoint(scratch.path());
  const std::string quick = save(scratch.path(), 1);
  assert_true(complete_checkpoint(slow.value().path, {slow.value().number, 0, {}, {}}).ok());
  assert_true(prune_checkpoints(scratch.path(), 1, slow.value().number).ok());
  assert_true(fs::exists(slow.value().path) && fs::exists(quick));
}

void an_abandoned_save_leaves_no_file(void**) {
  const Scratch scratch;
  const std::atomic<bool> given_up{true};
  auto tables = saved_tables(0, 1);
  const auto file = write_part(scratch.path(), 1, 0, 1, false, tables, given_up);
  assert_true(!file.ok() && file.status().code() == MV_ECANCELED);
  assert_true(fs::is_empty(scratch.path()));
}

void a_file_that_another_process_was_writing_is_written_by_this_one(void**) {
  const Scratch scratch;
  const std::string path = scratch.path() + "/server-1.safetensors";
  auto slow = OutputFile::create(path, 4);
  auto other = OutputFile::create(scratch.path() + "/server-10.safetensors", 4);
  auto next = OutputFile::create_instead(path, 4);
  const auto bytes = [](const char* text) { return std::as_bytes(std::span(text, 4)); };
  assert_true(slow.value().write(0, bytes("slow")).ok() && next.value().write(0, bytes("next")).ok() && other.value().write(0, bytes("othe")).ok());
  assert_false(slow.value().finish().ok());
  assert_true(next.value().finish().ok() && other.value().finish().ok());
  assert_string_equal(read_file(path, 100).value().c_str(), "next");
}

void a_checkpoint_whose_process_is_lost_is_taken_over(void**) {
  const Scratch scratch;
  auto lost = begin_checkpoint(scratch.path());
  assert_true(lost.value().claim->counts(lost.value().path));
  const auto taken = take_over_checkpoint(lost.value().path);
  assert_true(taken.ok() && !taken.value().whole && taken.value().number == lost.value().number);
  assert_true(taken.value().claim->counts(lost.value().path));
  assert_false(lost.value().claim->counts(lost.value().path));
  lost.value().claim.reset();
  save(scratch.path(), 1);
  assert_true(prune_checkpoints(scratch.path(), 0).ok());
  assert_true(fs::exists(lost.value().path));  // it is claimed again
  assert_true(complete_checkpoint(lost.value().path, {lost.value().number, 0, {}, {}}).ok());
  assert_true(take_over_checkpoint(lost.value().path).value().whole);
  assert_int_equal(take_over_checkpoint(scratch.path() + "/checkpoint-000077").status().code(), MV_ENOTFOUND);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(checkpoints_round_trip),
      cmocka_unit_test(a_real_shard_is_restored_on_another_number_of_servers),
      cmocka_unit_test(names_that_meet_are_kept_apart),
      cmocka_unit_test(a_hundred_thousand_tables_fit_into_a_file),
      cmocka_unit_test(unreadable_files_do_not_count_as_damaged),
      cmocka_unit_test(damage_is_reported),
      cmocka_unit_test(tensors_must_not_overlap_or_leave_gaps),
      cmocka_unit_test(rows_that_no_file_has_are_damage),
      cmocka_unit_test(the_newest_complete_checkpoints_are_kept),
      cmocka_unit_test(another_jobs_unfinished_checkpoint_stays_while_it_lives),
      cmocka_unit_test(another_machines_unfinished_checkpoint_stays_for_an_hour),
      cmocka_unit_test(two_jobs_never_take_the_same_number),
      cmocka_unit_test(a_job_that_is_overtaken_keeps_what_it_has_just_saved),
      cmocka_unit_test(an_abandoned_save_leaves_no_file),
      cmocka_unit_test(a_file_that_another_process_was_writing_is_written_by_this_one),
      cmocka_unit_test(a_checkpoint_whose_process_is_lost_is_taken_over),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
