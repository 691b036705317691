// crossover completion: scripts with which a shell completes the program's command line.

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "options.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

constexpr Usage kCompletionUsage{
    "crossover completion SHELL [options]",
    "Prints a script with which bash, zsh or fish completes commands, options, known values and files. It is made "
    "from\n"
    "the tables that --help is made from; an installed package has the three scripts where the shells look.",
    "source <(crossover completion bash)"};

constexpr std::string_view kFileValue = "FILE";

// `text` as one word of a shell (of fish as well: no backslash is doubled outside of quotes in ours).
std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string command_words(const Command& command) {
  return command.action.empty() ? std::string(command.name) : fmt::format("{} {}", command.name, command.action);
}

// The first words of the commands, each once, in their order.
std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Command* command : commands()) {
    if (words.empty() || words.back() != command->name) words.emplace_back(command->name);
  }
  return words;
}

std::vector<const Command*> actions_of(std::string_view name) {
  std::vector<const Command*> result;
  for (const Command* command : commands()) {
    if (command->name == name && !command->action.empty()) result.push_back(command);
  }
  return result;
}

std::string summary_of(std::string_view name) {
  const auto actions = actions_of(name);
  if (!actions.empty()) {
    std::vector<std::string> words;
    for (const Command* each : actions) words.emplace_back(each->action);
    return join(words);
  }
  const auto found =
      std::find_if(commands().begin(), commands().end(), [&](const Command* c) { return c->name == name; });
  return std::string((*found)->summary);
}

std::string spaced(std::span<const std::string_view> words) { return fmt::format("{}", fmt::join(words, " ")); }

constexpr std::string_view kBashHead = R"(# bash completion for crossover(1)

# WORDS CURRENT: those of WORDS that begin with CURRENT. readline takes what follows a colon for a word of its own.
_crossover_reply() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
  if [[ $2 == *:* && $COMP_WORDBREAKS == *:* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${2%"${2##*:}"}"}")
  fi
}

_crossover() {
  local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT}
  local current='' previous='' command='' options='' takes='' arguments=''
  local -a words
  COMPREPLY=()
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  ((${#words[@]} >= 2)) || return 0
  current=${words[-1]} previous=${words[-2]} command=${words[1]}
)";

constexpr std::string_view kBashTail = R"(  esac
  if [[ $current == --*=* ]]; then
    previous=${current%%=*} current=${current#*=}
  fi
  if [[ " $takes " != *" $previous "* ]]; then
    _crossover_reply "$arguments $options" "$current"
    return 0
  fi
  case $previous in
)";

std::string bash_script() {
  std::string text(kBashHead);
  text += fmt::format("  if ((${{#words[@]}} == 2)); then\n    _crossover_reply {} \"$current\"\n    return 0\n  fi\n",
                      shell_word(fmt::format("{} --help --version", fmt::join(first_words(), " "))));
  for (const std::string& name : first_words()) {
    const auto actions = actions_of(name);
    if (actions.empty()) continue;
    std::string words;
    for (const Command* each : actions) words += fmt::format("{} ", each->action);
    text += fmt::format(
        "  if [[ $command == {} ]]; then\n    if ((${{#words[@]}} == 3)); then\n      _crossover_reply {} "
        "\"$current\"\n      return 0\n    fi\n    command+=\" ${{words[2]}}\"\n  fi\n",
        name, shell_word(words + "--help"));
  }
  text += "  case $command in\n";
  std::vector<std::string> files;
  std::vector<std::pair<std::string, std::string>> values;  // option, and what it takes
  for (const Command* command : commands()) {
    std::string all, takes;
    for (const OptionText& option : option_texts(*command)) {
      const std::string name = "--" + option.name;
      all += (all.empty() ? "" : " ") + name;
      if (option.help) all += " -h";
      if (option.value.empty()) continue;
      takes += (takes.empty() ? "" : " ") + name;
      if (option.value == kFileValue && std::find(files.begin(), files.end(), name) == files.end())
        files.push_back(name);
      const std::pair entry{name, spaced(known_values(option.name))};
      if (!entry.second.empty() && std::find(values.begin(), values.end(), entry) == values.end())
        values.push_back(entry);
    }
    text +=
        fmt::format("    {})\n      options={} takes={} arguments={}\n      ;;\n", shell_word(command_words(*command)),
                    shell_word(all), shell_word(takes), shell_word(spaced(known_values(command->positional))));
  }
  text += kBashTail;
  text += fmt::format(
      "    {})\n      mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
      "      compopt -o filenames -o default 2>/dev/null\n      ;;\n",
      fmt::join(files, " | "));
  for (const auto& [name, words] : values)
    text += fmt::format("    {})\n      _crossover_reply {} \"$current\"\n      ;;\n", name, shell_word(words));
  return text + "  esac\n  return 0\n}\n\ncomplete -F _crossover crossover\n";
}

std::string zsh_action(std::string_view name, std::string_view value) {
  if (value == kFileValue) return "_files";
  const auto values = known_values(name);
  return values.empty() ? std::string(" ") : fmt::format("({})", escaped(spaced(values), ":"));
}

std::string zsh_script() {
  std::string text =
      "#compdef crossover\n# zsh completion for crossover(1)\n\n_crossover() {\n  local command=$words[2]\n";
  text += "  local -a choices\n  if (( CURRENT == 2 )); then\n    choices=(\n";
  for (const std::string& name : first_words())
    text += fmt::format("      {}\n", shell_word(fmt::format("{}:{}", name, escaped(summary_of(name), ":\\"))));
  text +=
      "    )\n    _describe -t commands command choices\n    _arguments '--help[this text]' '--version[the version]'\n"
      "    return\n  fi\n  shift words\n  (( CURRENT-- ))\n";
  for (const std::string& name : first_words()) {
    const auto actions = actions_of(name);
    if (actions.empty()) continue;
    text += fmt::format("  if [[ $command == {} ]]; then\n    if (( CURRENT == 2 )); then\n      choices=(\n", name);
    for (const Command* each : actions)
      text +=
          fmt::format("        {}\n", shell_word(fmt::format("{}:{}", each->action, escaped(each->summary, ":\\"))));
    text +=
        "      )\n      _describe -t commands action choices\n      return\n    fi\n    command+=\" $words[2]\"\n"
        "    shift words\n    (( CURRENT-- ))\n  fi\n";
  }
  text += "  case $command in\n";
  for (const Command* command : commands()) {
    text += fmt::format("    {})\n      _arguments", shell_word(command_words(*command)));
    for (const OptionText& option : option_texts(*command)) {
      const std::string about = fmt::format("[{}]", escaped(option.about, "[]:\\"));
      const std::string value = option.value.empty() ? std::string()
                                                     : fmt::format(":{}:{}", escaped(option.value, ":\\"),
                                                                   zsh_action(option.name, option.value));
      text += fmt::format(" \\\n        {}",
                          shell_word(fmt::format("{}--{}{}{}{}", option.repeatable ? "*" : "", option.name,
                                                 option.value.empty() ? "" : "=", about, value)));
      if (option.help) text += fmt::format(" \\\n        {}", shell_word("-h" + about));
    }
    if (!command->positional.empty())
      text += fmt::format(" \\\n        {}", shell_word(fmt::format(":{}:{}", escaped(command->positional, ":\\"),
                                                                    zsh_action(command->positional, ""))));
    text += "\n      ;;\n";
  }
  return text + "  esac\n}\n\n_crossover \"$@\"\n";
}

constexpr std::string_view kFishHead = R"(# fish completion for crossover(1)

# Whether the words before the cursor are `crossover` and the arguments of this function, and nothing else.
function __crossover_at
    set -l words (commandline -opc)
    set -e words[1]
    test "$words" = "$argv"
end

# Whether the first words are those.
function __crossover_in
    set -l words (commandline -opc)
    set -e words[1]
    string match -q -- "$argv *" "$words "
end

complete -c crossover -f
)";

// As one word of fish, where a backslash counts within single quotes too.
std::string fish_word(std::string_view text) { return fmt::format("'{}'", escaped(text, "'\\")); }

std::string fish_script() {
  std::string text(kFishHead);
  text +=
      "complete -c crossover -n '__crossover_at' -l help -s h -d 'this text'\n"
      "complete -c crossover -n '__crossover_at' -l version -d 'the version'\n";
  for (const std::string& name : first_words()) {
    text += fmt::format("complete -c crossover -n '__crossover_at' -a {} -d {}\n", name, fish_word(summary_of(name)));
    for (const Command* each : actions_of(name))
      text += fmt::format("complete -c crossover -n '__crossover_at {}' -a {} -d {}\n", name, each->action,
                          fish_word(each->summary));
  }
  for (const Command* command : commands()) {
    const std::string condition = fmt::format("complete -c crossover -n '__crossover_in {}'", command_words(*command));
    text += '\n';
    if (const auto values = known_values(command->positional); !values.empty())
      text += fmt::format("{} -a {}\n", condition, fish_word(spaced(values)));
    for (const OptionText& option : option_texts(*command)) {
      text += fmt::format("{} -l {}", condition, option.name);
      if (option.help) text += " -s h";
      if (option.value == kFileValue) {
        text += " -r -F";
      } else if (!option.value.empty()) {
        text += " -x";
        if (const auto values = known_values(option.name); !values.empty())
          text += fmt::format(" -a {}", fish_word(spaced(values)));
      }
      text += fmt::format(" -d {}\n", fish_word(option.about));
    }
  }
  return text;
}

void describe_completion(Described& options) { options.add_options()("help,h", "this text"); }

int run_completion(const Arguments& arguments) {
  const auto options = Options::parse(kCompletionCommand, arguments);
  if (!options) return kDone;
  const std::string& shell = options->positional();
  if (shell == "bash") {
    write_output(bash_script());
  } else if (shell == "zsh") {
    write_output(zsh_script());
  } else if (shell == "fish") {
    write_output(fish_script());
  } else {
    throw InvalidArgument(fmt::format("there are completions for bash, zsh and fish, not for '{}'", shell));
  }
  return kDone;
}

}  // namespace

constinit const Command kCompletionCommand{
    "completion",     "",      "a script with which a shell (bash, zsh, fish) completes the command line",
    kCompletionUsage, "SHELL", describe_completion,
    run_completion};

}  // namespace crossover::program
