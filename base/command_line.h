// Wrong arguments of a program: one line and exit code 2. For programs that link CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace octavo {

inline constexpr int kExitUsage = 2;

// What is wrong, without the name of the program. CLI11 calls every configuration file INI.
inline std::string DescribeParseError(const CLI::ParseError& error) {
  absl::string_view message = error.what();
  if (!absl::ConsumePrefix(&message, "INI was not able to parse ")) return std::string(message);
  return absl::StrCat("configuration file: \"", message, "\" is not the name of a flag");
}

// Runs `app`, whose name is the program's, over the arguments. True: go on. False: exit with
// `*exit_code`; what there is to say, help included, is written.
inline bool ParseCommandLine(CLI::App* app, int argc, const char* const* argv, int* exit_code) {
  app->failure_message([](const CLI::App* failed, const CLI::Error& error) {
    const auto* parse_error = dynamic_cast<const CLI::ParseError*>(&error);
    return absl::StrCat(
        failed->get_name(), ": ",
        parse_error != nullptr ? DescribeParseError(*parse_error) : std::string(error.what()),
        "\nTry ", failed->get_name(), " --help.\n");
  });
  try {
    app->parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    *exit_code = app->exit(error) == 0 ? 0 : kExitUsage;
    return false;
  }
}

}  // namespace octavo
