// What deploy/ says to other programs: it parses, names files that exist and metrics that exist.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/job_spec.h"
#include "proto/support/metric_table.h"
#include "tests/tidy/source_tree.h"

namespace octavo::tidy {
namespace {

namespace fs = std::filesystem;

const fs::path kDeploy = fs::path(OCTAVO_SOURCE_DIR) / "deploy";

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> FilesBelow(const fs::path& folder, const std::vector<std::string>& endings) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    for (const std::string& ending : endings) {
      if (entry.is_regular_file() && absl::EndsWith(entry.path().string(), ending)) {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Every name that the coordinator exports: rows of the metric table and literals of its collector.
std::set<std::string> ExportedMetrics() {
  std::set<std::string> names;
  for (const MetricRow& row : MetricTable()) names.insert(std::string(row.prometheus));
  const std::regex literal(R"re("(octavo_[a-z0-9_]+)")re");
  for (const SourceFile& file : ReadTree({".cc"})) {
    if (!absl::StartsWith(file.path, "server/telemetry/")) continue;
    for (const std::string& line : file.lines) {
      for (std::sregex_iterator match(line.begin(), line.end(), literal), end; match != end;
           ++match) {
        names.insert((*match)[1]);
      }
    }
  }
  return names;
}

void ExpectMetricsExist(const std::string& expression, const std::string& where) {
  static const std::set<std::string> kExported = ExportedMetrics();
  static const std::regex kName(R"(\boctavo_[a-z0-9_]+)");
  for (std::sregex_iterator match(expression.begin(), expression.end(), kName), end; match != end;
       ++match) {
    const std::string name = match->str();
    bool known = kExported.count(name) > 0;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {  // of a histogram
      known = known || (absl::EndsWith(name, suffix) &&
                        kExported.count(std::string(absl::StripSuffix(name, suffix))) > 0);
    }
    EXPECT_TRUE(known) << where << ": the coordinator exports no " << name;
  }
}

TEST(Deploy, TheExportedMetricsAreFound) {
  const std::set<std::string> exported = ExportedMetrics();
  EXPECT_TRUE(exported.count("octavo_train_loss")) << "of the metric table";
  EXPECT_TRUE(exported.count("octavo_job_info")) << "of server/telemetry";
}

TEST(Deploy, EveryYamlFileParses) {
  const auto files = FilesBelow(kDeploy, {".yaml", ".yml"});
  EXPECT_GT(files.size(), 15u);
  for (const fs::path& path : files) {
    EXPECT_NO_THROW(EXPECT_FALSE(YAML::LoadAll(ReadText(path)).empty()) << path) << path;
  }
}

TEST(Deploy, KustomizationsNameFilesThatExistAndLeaveNoneOut) {
  const auto files = FilesBelow(kDeploy / "kustomize", {"kustomization.yaml"});
  EXPECT_EQ(files.size(), 3u);
  for (const fs::path& path : files) {
    const YAML::Node file = YAML::LoadFile(path);
    std::set<fs::path> named = {path};
    for (const YAML::Node& resource : file["resources"]) {
      named.insert((path.parent_path() / resource.as<std::string>()).lexically_normal());
    }
    for (const YAML::Node& patch : file["patches"]) {
      named.insert(path.parent_path() / patch["path"].as<std::string>());
    }
    for (const YAML::Node& map : file["configMapGenerator"]) {
      for (const YAML::Node& source : map["files"]) {
        named.insert(path.parent_path() / source.as<std::string>());
      }
    }
    for (const fs::path& one : named) EXPECT_TRUE(fs::exists(one)) << path << " names " << one;
    for (const auto& entry : fs::directory_iterator(path.parent_path())) {
      EXPECT_TRUE(named.count(entry.path())) << path << " does not name " << entry.path();
    }
  }
}

// The pods' containers, whatever the kind of the resource.
std::vector<YAML::Node> PodSpecs() {
  std::vector<YAML::Node> specs;
  for (const fs::path& path : FilesBelow(kDeploy / "kustomize", {"er.yaml", "tor.yaml"})) {
    for (const YAML::Node& resource : YAML::LoadAllFromFile(path)) {
      // The files beside them that hold configurations have no kind.
      const YAML::Node spec = resource["kind"] ? resource["spec"] : YAML::Node();
      if (spec.IsMap() && spec["template"]) specs.push_back(spec["template"]["spec"]);
    }
  }
  return specs;
}

TEST(Deploy, PodsRunWithoutPrivileges) {
  const auto specs = PodSpecs();
  ASSERT_EQ(specs.size(), 3u);
  for (const YAML::Node& spec : specs) {
    EXPECT_TRUE(spec["securityContext"]["runAsNonRoot"].as<bool>());
    EXPECT_FALSE(spec["automountServiceAccountToken"].as<bool>());
    for (const YAML::Node& container : spec["containers"]) {
      const YAML::Node security = container["securityContext"];
      EXPECT_TRUE(security["readOnlyRootFilesystem"].as<bool>());
      EXPECT_FALSE(security["allowPrivilegeEscalation"].as<bool>());
      EXPECT_EQ(security["capabilities"]["drop"][0].as<std::string>(), "ALL");
      std::set<std::string> volumes;
      for (const YAML::Node& volume : spec["volumes"])
        volumes.insert(volume["name"].as<std::string>());
      volumes.insert("state");  // of volumeClaimTemplates
      for (const YAML::Node& mount : container["volumeMounts"]) {
        EXPECT_TRUE(volumes.count(mount["name"].as<std::string>())) << mount["name"];
      }
    }
  }
}

TEST(Deploy, AlertsAreCompleteAndNameMetricsThatExist) {
  const YAML::Node file = YAML::LoadFile(kDeploy / "prometheus/octavo-rules.yml");
  std::set<std::string> names;
  for (const YAML::Node& group : file["groups"]) {
    for (const YAML::Node& rule : group["rules"]) {
      const std::string name = rule["alert"].as<std::string>();
      EXPECT_TRUE(names.insert(name).second) << name << " stands twice";
      EXPECT_TRUE(rule["labels"]["severity"].IsDefined()) << name;
      EXPECT_TRUE(rule["annotations"]["summary"].IsDefined()) << name;
      EXPECT_TRUE(rule["annotations"]["description"].IsDefined()) << name;
      ExpectMetricsExist(rule["expr"].as<std::string>(), name);
    }
  }
  EXPECT_GE(names.size(), 10u);
}

// Training metrics have a label `job`; Prometheus would rename it to exported_job.
TEST(Deploy, ScrapingKeepsTheLabelJob) {
  const YAML::Node file = YAML::LoadFile(kDeploy / "prometheus/prometheus.yml");
  ASSERT_EQ(file["scrape_configs"].size(), 1u);
  EXPECT_TRUE(file["scrape_configs"][0]["honor_labels"].as<bool>());
  for (const YAML::Node& rules : file["rule_files"]) {
    EXPECT_TRUE(fs::exists(kDeploy / "prometheus" / rules.as<std::string>()));
  }
}

TEST(Deploy, PromtoolAgrees) {
  if (std::system("command -v promtool >/dev/null") != 0) {
    GTEST_SKIP() << "skipped: no promtool on the PATH (Debian package prometheus)";
  }
  const std::string folder = (kDeploy / "prometheus").string();
  EXPECT_EQ(std::system(absl::StrCat("cd '", folder,
                                     "' && promtool check config prometheus.yml && "
                                     "promtool test rules octavo-rules-test.yml")
                            .c_str()),
            0);
}

TEST(Deploy, KubectlRendersTheOverlays) {
  if (std::system("command -v kubectl >/dev/null") != 0) {
    GTEST_SKIP() << "skipped: no kubectl on the PATH";
  }
  for (const char* overlay : {"cpu", "gpu"}) {
    const std::string folder = (kDeploy / "kustomize/overlays" / overlay).string();
    EXPECT_EQ(std::system(absl::StrCat("kubectl kustomize '", folder, "' >/dev/null").c_str()), 0);
  }
}

TEST(Deploy, DashboardPanelsAreExplainedAndNameMetricsThatExist) {
  const auto dashboard =
      nlohmann::json::parse(ReadText(kDeploy / "grafana/octavo.json"), nullptr, false);
  ASSERT_FALSE(dashboard.is_discarded());
  EXPECT_TRUE(dashboard["id"].is_null());
  EXPECT_FALSE(dashboard["uid"].get<std::string>().empty());
  std::set<int> ids;
  for (const auto& panel : dashboard["panels"]) {
    const std::string title = panel["title"].get<std::string>();
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << title;
    EXPECT_FALSE(panel["description"].get<std::string>().empty()) << title;
    EXPECT_TRUE(panel["fieldConfig"]["defaults"].contains("unit")) << title;
    EXPECT_FALSE(panel["targets"].empty()) << title;
    for (const auto& target : panel["targets"]) {
      EXPECT_EQ(target["datasource"]["uid"], "${datasource}") << title;
      ExpectMetricsExist(target["expr"].get<std::string>(), title);
    }
  }
  EXPECT_GE(ids.size(), 12u);
  for (const auto& variable : dashboard["templating"]["list"]) {
    ExpectMetricsExist(variable.value("definition", ""), variable["name"].get<std::string>());
  }
}

TEST(Deploy, ExampleJobsCanBeSubmitted) {
  const auto files = FilesBelow(kDeploy / "examples", {".yaml"});
  EXPECT_GE(files.size(), 3u);
  for (const fs::path& path : files) {
    ParsedSpec parsed = ParseJobSpec(ReadText(path), {});
    EXPECT_EQ(JoinViolations(parsed.violations), "") << path;
    FillDefaults(&parsed.spec);
    EXPECT_EQ(JoinViolations(CheckJobSpec(parsed.spec)), "") << path;
  }
}

}  // namespace
}  // namespace octavo::tidy
