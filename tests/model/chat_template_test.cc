// Rendered prompts against those of the templates' own language (Jinja2), to the byte.
#include "model/chat_template.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "model/jinja.h"
#include "model/tokenizer_spec.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"

using namespace cento;
using cento::test::model_path;
using cento::test::read_all;
using cento::test::shared_path;
using cento::test::TempDir;
using nlohmann::json;

namespace {

using Messages = std::vector<Message>;

Messages messages_of(const json& list) {
  Messages out;
  for (const json& m : list) out.push_back({m["role"].get<std::string>(), m["content"].get<std::string>()});
  return out;
}

std::string rendered(const ChatTemplate& t, const Messages& messages, bool generation) {
  return ChatTemplate::text(t.render(messages, generation));
}

// The reason a template is refused, or "".
std::string refusal(const std::string& source) {
  try {
    ChatTemplate::learn(source, "<BOS>", "<EOS>", "model.gguf");
  } catch (const Error& error) {
    CHECK(error.code() == Code::kInput);
    CHECK(error.hint().find("--chat-template NAME") != std::string::npos);
    return error.message();
  }
  return {};
}

std::string run_jinja(const std::string& source) {
  std::string why;
  const auto t = JinjaTemplate::parse(source, why);
  if (!t) return "error: " + why;
  JinjaTemplate::Input input;
  input.messages = {{"user", "x"}, {"assistant", "b"}};
  input.bos_token = "<s>", input.eos_token = "</s>";
  const auto out = t->render(input);
  using Status = JinjaTemplate::Output::Status;
  return out.status == Status::kText ? out.text : (out.status == Status::kRefused ? "refused: " : "error: ") + out.text;
}

const Messages kLong = {{"system", " Be brief. "}, {"user", "Hi\n"}, {"assistant", "Hello."}, {"user", "2+2?"}};

}  // namespace

TEST_CASE("chat template: SmolLM2 and Qwen2.5 are rendered as transformers does, default system text and all",
          "[model][chat]") {
  const auto golden = shared_path("data/golden/chat-templates.json");
  if (!golden) return;
  size_t n = 0;
  for (const json& item : json::parse(read_all(*golden))) {
    const bool smol = item["model"] == "smollm2";
    const auto path = model_path(smol ? "smollm2-135m-instruct-q4_1.gguf" : "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
    if (!path) continue;
    const ChatTemplate t = ChatTemplate::recognise(GgufFile(*path));
    CHECK(t.kind() == TemplateKind::kChatMl);
    CHECK(t.default_system() == (smol ? "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
                                      : "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."));
    CHECK(rendered(t, messages_of(item["messages"]), item["add_generation_prompt"]) == item["text"].get<std::string>());
    ++n;
  }
  CHECK(n % 8 == 0);  // eight renderings of each model that is there
}

TEST_CASE("chat template: real templates are rendered to the byte or refused, never wrong", "[model][chat]") {
  const auto file = shared_path("data/golden/templates/rendered.json");
  if (!file) return;
  // What becomes of each: its family, or why it is refused.
  const std::map<std::string, std::string> wanted = {
      {"meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3"},  {"meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3"},
      {"meta-llama-Llama-3.3-70B-Instruct.jinja", "llama3"}, {"google-gemma-2-2b-it.jinja", "gemma"},
      {"microsoft-Phi-3.5-mini-instruct.jinja", "phi3"},     {"mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral"},
      {"Qwen-Qwen2.5-7B-Instruct.jinja", "chatml"},
  };
  std::map<std::string, size_t> compared;
  std::map<std::string, std::string> outcome;
  for (const json& item : json::parse(read_all(*file))) {
    const std::string name = item["template"];
    if (!item["tools"].is_null()) continue;  // conversations with tools are another's business
    const std::string source = read_all(*shared_path("data/golden/templates/" + name));
    std::optional<ChatTemplate> t;
    try {
      t = ChatTemplate::learn(source, "<BOS>", "<EOS>");
      outcome[name] = t->name();
    } catch (const Error& error) {
      outcome[name] = "refused: " + error.message();
      continue;
    }
    const Messages messages = messages_of(item["messages"]);
    const bool generation = item["add_generation_prompt"];
    CAPTURE(name, item["messages"].dump(), generation);
    if (item.contains("error")) {
      // Gemma 2 takes no system turn; ours puts the text in front of the question instead of giving up
      // (chat_template.h).
      CHECK(name == "google-gemma-2-2b-it.jinja");
      CHECK(rendered(*t, messages, generation).find(messages[0].content + "\n\n" + messages[1].content) !=
            std::string::npos);
      continue;
    }
    std::string text = item["text"];
    if (name == "meta-llama-Llama-3.2-3B-Instruct.jinja") {
      // Its date is that of the day where the renderer has a clock for it, else a fixed one. cento gives it none: a
      // prompt that changed every midnight would make everything stored worthless.
      const size_t at = text.find("26 Jul 2026");
      REQUIRE(at != std::string::npos);
      text.replace(at, 11, "26 Jul 2024");
    }
    CHECK(rendered(*t, messages, generation) == text);
    ++compared[name];
  }
  for (const auto& [name, what] : outcome) {
    if (std::getenv("CHAT_OUTCOMES")) std::printf("%-55s %s (%zu)\n", name.c_str(), what.c_str(), compared[name]);
    if (wanted.count(name)) CHECK(what == wanted.at(name));
  }
  CHECK(outcome.size() == 23);
}

TEST_CASE("chat template: a frame around a question is the rendered conversation", "[model][chat]") {
  std::vector<std::pair<std::string, ChatTemplate>> all;
  for (const std::string& name : ChatTemplate::names()) {
    const GgufFile file = [&] {
      const TempDir folder;
      test::GgufWriter writer;
      writer.put_text("tokenizer.chat_template", "nonsense {% that an override wins over");
      writer.write(folder / "m.gguf");
      return GgufFile(folder / "m.gguf");
    }();
    all.emplace_back(name, ChatTemplate::recognise(file, name));
    CHECK(all.back().second.name() == name);
  }
  if (const auto folder = shared_path("data/golden/templates"))
    for (const auto& entry : std::filesystem::directory_iterator(*folder))
      if (entry.path().extension() == ".jinja") try {
          all.emplace_back(entry.path().filename(), ChatTemplate::learn(read_all(entry.path()), "<BOS>", "<EOS>"));
        } catch (const Error&) {  // refused; another test says which
        }
  for (const auto& [name, t] : all)
    for (const std::string system : {"", "Answer from the documents.", " two\nlines \n"})
      for (const std::string user : {"Why?", "content", "a\nb {{ c }}"}) {
        CAPTURE(name, system, user);
        const auto frame = t.frame(system);
        Messages messages = {{"user", user}};
        if (!system.empty()) messages.insert(messages.begin(), {"system", system});
        CHECK(ChatTemplate::text(frame.head) + user + ChatTemplate::text(frame.tail) == rendered(t, messages, true));
        if (!system.empty())
          CHECK(std::count_if(frame.head.begin(), frame.head.end(), [](const auto& p) { return !p.is_template; }) == 1);
      }
}

TEST_CASE("chat template: the plain forms of the families", "[model][chat]") {
  const std::map<TemplateKind, std::pair<std::string, std::string>> wanted = {
      // with the generation prompt; without
      {TemplateKind::kNone, {" Be brief. \nHi\n\nHello.\n2+2?\n", " Be brief. \nHi\n\nHello.\n2+2?"}},
      {TemplateKind::kChatMl,
       {"<|im_start|>system\n Be brief. "
        "<|im_end|>\n<|im_start|>user\nHi\n<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>system\n Be brief. "
        "<|im_end|>\n<|im_start|>user\nHi\n<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\n2+2?<|im_end|>\n"}},
      {TemplateKind::kLlama3,
       {"<|start_header_id|>system<|end_header_id|>\n\nBe "
        "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|><|start_header_id|>user<|end_header_id|>"
        "\n\n2+2?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|start_header_id|>system<|end_header_id|>\n\nBe "
        "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|><|start_header_id|>user<|end_header_id|>"
        "\n\n2+2?"
        "<|eot_id|>"}},
      {TemplateKind::kLlama2,
       {"[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s><s>[INST] 2+2? [/INST]",
        "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s><s>[INST] 2+2? [/INST]"}},
      {TemplateKind::kMistral,
       {"[INST]  Be brief. \n\nHi\n [/INST] Hello.</s>[INST] 2+2? [/INST]",
        "[INST]  Be brief. \n\nHi\n [/INST] Hello.</s>[INST] 2+2? [/INST]"}},
      {TemplateKind::kGemma,
       {"<start_of_turn>user\nBe "
        "brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n<start_of_turn>user\n2+2?"
        "<end_of_turn>\n<start_of_turn>model\n",
        "<start_of_turn>user\nBe "
        "brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n<start_of_turn>user\n2+2?"
        "<end_of_turn>\n"}},
      {TemplateKind::kPhi3,
       {"<|system|>\n Be brief. "
        "<|end|>\n<|user|>\nHi\n<|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\n2+2?<|end|>\n<|assistant|>\n",
        "<|system|>\n Be brief. "
        "<|end|>\n<|user|>\nHi\n<|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\n2+2?<|end|>\n"}},
      {TemplateKind::kZephyr,
       {"<|system|>\n Be brief. "
        "</s>\n<|user|>\nHi\n</s>\n<|assistant|>\nHello.</s>\n<|user|>\n2+2?</s>\n<|assistant|>\n",
        "<|system|>\n Be brief. </s>\n<|user|>\nHi\n</s>\n<|assistant|>\nHello.</s>\n<|user|>\n2+2?</s>\n"}},
  };
  CHECK(wanted.size() == ChatTemplate::names().size());
  for (const auto& [kind, texts] : wanted) {
    const ChatTemplate t = ChatTemplate::of(kind);
    CAPTURE(t.name());
    CHECK(rendered(t, kLong, true) == texts.first);
    CHECK(rendered(t, kLong, false) == texts.second);
    CHECK(t.stop_texts().empty() == (kind == TemplateKind::kNone));
    for (const std::string& stop : t.stop_texts()) CHECK(rendered(t, kLong, true).find(stop) != std::string::npos);
  }
  const ChatTemplate with_default = ChatTemplate::of(TemplateKind::kChatMl, "Help.");
  CHECK(rendered(with_default, {{"user", "x"}}, false) ==
        "<|im_start|>system\nHelp.<|im_end|>\n<|im_start|>user\nx<|im_end|>\n");
  CHECK(with_default.default_system() == "Help.");
  CHECK(rendered(with_default, kLong, true) == wanted.at(TemplateKind::kChatMl).first);
}

TEST_CASE("chat template: variants of the families are followed as the file writes them", "[model][chat]") {
  const auto kind_and_text = [](const std::string& source, const Messages& messages, bool generation = true) {
    const ChatTemplate t = ChatTemplate::learn(source, "<s>", "</s>");
    return std::string(t.name()) + ": " + rendered(t, messages, generation);
  };
  const Messages two = {{"system", "Sy "}, {"user", " Q\n"}, {"assistant", "A"}, {"user", "R"}};
  // Mistral with and without spaces, the system text in the first question.
  const std::string mistral =
      "{{ bos_token }}{% set sys = '' %}{% if messages[0].role == 'system' %}{% set sys = messages[0].content + "
      "'\\n\\n' %}"
      "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 "
      "== 0) %}"
      "{{ raise_exception('alternate') }}{% endif %}{% if m.role == 'user' %}{{ '[INST] ' + (sys if loop.first else "
      "'') + m.content "
      "+ ' [/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}";
  CHECK(kind_and_text(mistral, two) == "mistral: <s>[INST] Sy \n\n Q\n [/INST]A</s>[INST] R [/INST]");
  // Llama 2, trimmed as a whole: the system text keeps its space, the first question loses it at its end only.
  const std::string llama2 =
      "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = messages[0]['content'] %}{% "
      "else %}"
      "{% set rest = messages %}{% set sys = false %}{% endif %}{% for m in rest %}{% if loop.index0 == 0 and sys != "
      "false %}"
      "{% set c = '<<SYS>>\\n' + sys + '\\n<</SYS>>\\n\\n' + m['content'] %}{% else %}{% set c = m['content'] %}{% "
      "endif %}"
      "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + c.strip() + ' [/INST]' }}{% elif m['role'] == "
      "'assistant' %}"
      "{{ ' ' + c.strip() + ' ' + eos_token }}{% endif %}{% endfor %}";
  CHECK(kind_and_text(llama2, two) ==
        "llama2: <s>[INST] <<SYS>>\nSy \n<</SYS>>\n\n Q [/INST] A </s><s>[INST] R [/INST]");
  const std::string zephyr =
      "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\\n' + m['content'] + eos_token }}\n"
      "{% elif m['role'] == 'system' %}\n{{ '<|system|>\\n' + m['content'] + eos_token }}\n{% else %}\n"
      "{{ '<|assistant|>\\n' + m['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n"
      "{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}";
  CHECK(kind_and_text(zephyr, two) ==
        "zephyr: <|system|>\nSy </s>\n<|user|>\n Q\n</s>\n<|assistant|>\nA</s>\n<|user|>\nR</s>\n<|assistant|>\n");
  // A default system text, a system text that is dropped (Phi-3 at first), text for every conversation (Llama 3.1).
  const std::string with_default =
      "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}{% for m in messages %}"
      "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  const ChatTemplate t = ChatTemplate::learn(with_default, "", "");
  CHECK(t.default_system() == "Be kind.");
  CHECK(rendered(t, {{"user", "x"}}, false) ==
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nx<|im_end|>\n");
  CHECK(rendered(t, {{"user", "x"}, {"system", "y"}, {"user", "z"}}, false) ==
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>system\ny<|im_end|>\n"
        "<|im_start|>user\nz<|im_end|>\n");
  const std::string phi3 =
      "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') %}{{'<|user|>' + '\n' + m['content'] + "
      "'<|end|>' + '\n' + "
      "'<|assistant|>' + '\n'}}{% elif (m['role'] == 'assistant') %}{{m['content'] + '<|end|>' + '\n'}}{% endif %}{% "
      "endfor %}";
  CHECK(kind_and_text(phi3, two) ==
        "phi3: <s><|user|>\nSy\n\n Q\n<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nR<|end|>\n<|assistant|>\n");
  // Thinking of earlier answers goes; white space is taken off first.
  const std::string thinking =
      "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 "
      "%}{% endif %}"
      "{% endfor %}{% for m in messages %}{% set c = m.content|trim %}{% if m.role == 'assistant' and '</think>' in c "
      "and "
      "loop.index0 < ns.last %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
      "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}";
  CHECK(kind_and_text(thinking,
                      {{"user", "a"}, {"assistant", "<think>t</think>\n\n B "}, {"user", "<think>c</think>"}}) ==
        "chatml: <|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n "
        "B<|im_end|>\n<|im_start|>user\n<think>c</think><|im_end|>\n");
}

TEST_CASE("chat template: templates that do more than put text around turns are refused with the reason",
          "[model][chat]") {
  using Catch::Contains;
  const std::string plain =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}";
  CHECK(refusal(plain).empty());
  CHECK_THAT(refusal("{% for m in messages %}"), Contains("does not end"));
  CHECK_THAT(refusal("{% for m in messages %}{{ m.role }}{% endfor %}"), Contains("leaves out turns"));
  CHECK_THAT(refusal("{% for m in messages %}{{ m.content|upper }}{% endfor %}"), Contains("leaves out turns"));
  CHECK_THAT(refusal("{% for m in messages %}{{ m.content + m.content }}{% endfor %}"), Contains("leaves out turns"));
  CHECK_THAT(refusal("{{ strftime_now('%d') }}" + plain), Contains("'strftime_now' is not supported"));
  CHECK_THAT(refusal("{{ raise_exception('no tools') }}" + plain), Contains("refuses a plain question: no tools"));
  CHECK_THAT(refusal("{{ messages|length }}" + plain), Contains("changes"));
  CHECK_THAT(refusal("{% if messages|length > 6 %}many {% endif %}" + plain), Contains("SUAUAUAU"));
  CHECK_THAT(refusal("{% if 'magic' in messages[0].content %}!{% endif %}" + plain), Contains("'magic'"));
  CHECK_THAT(refusal("{% if messages[0].content.startswith('/x') %}!{% endif %}" + plain), Contains("'/x'"));
  CHECK_THAT(refusal("{% for m in messages %}<{{ m.content.replace(' ', '_') }}>{% endfor %}"),
             Contains("white space"));
  CHECK_THAT(refusal("{% for m in messages %}<{{ m.content|replace('\n', ' ') }}>{% endfor %}"),
             Contains("white space"));
  CHECK_THAT(refusal("{% include 'x' %}"), Contains("'include' is not supported"));
  // A family is named where its marks are there, and the override is the way out.
  CHECK_THAT(refusal("{{ now() }}" + plain), Contains("family chatml"));
}

TEST_CASE("chat template: what the file says, what the caller says, and what is wrong", "[model][chat]") {
  const TempDir folder;
  const auto file_with = [&](const std::string& source) {
    test::GgufWriter writer;
    writer.put_texts("tokenizer.ggml.tokens", {"<s>", "</s>"}).put_u32("tokenizer.ggml.bos_token_id", 0);
    writer.put_u32("tokenizer.ggml.eos_token_id", 1);
    if (source != "-") writer.put_text("tokenizer.chat_template", source);
    writer.write(folder / "m.gguf");
    return GgufFile(folder / "m.gguf");
  };
  CHECK(ChatTemplate::recognise(file_with("-")).kind() == TemplateKind::kNone);
  CHECK(ChatTemplate::recognise(file_with(" \n")).kind() == TemplateKind::kNone);
  const std::string inst =
      "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}"
      "{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}";
  const ChatTemplate mistral = ChatTemplate::recognise(file_with(inst));
  CHECK(mistral.kind() == TemplateKind::kMistral);
  CHECK(rendered(mistral, {{"user", "a"}, {"assistant", "b"}, {"user", "c"}}, true) ==
        "<s>[INST]a[/INST]b</s>[INST]c[/INST]");
  CHECK(ChatTemplate::recognise(file_with(inst), "gemma").kind() == TemplateKind::kGemma);
  CHECK(ChatTemplate::recognise(file_with(inst), "none").kind() == TemplateKind::kNone);
  try {
    ChatTemplate::recognise(file_with(inst), "chat-ml");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == Code::kUsage);
    CHECK(error.hint().find("chatml") != std::string::npos);
  }
  CHECK_THROWS_WITH(ChatTemplate::recognise(file_with("{{ x() }}")),
                    Catch::Contains("m.gguf") && Catch::Contains("--chat-template"));

  const ChatTemplate gemma = ChatTemplate::of(TemplateKind::kGemma);
  const auto refuses = [](const ChatTemplate& t, const Messages& messages) {
    try {
      t.render(messages, true);
    } catch (const Error& error) {
      return error.code() == Code::kUsage;
    }
    return false;
  };
  CHECK(refuses(gemma, {}));
  CHECK(refuses(gemma, {{"user", "a"}, {"system", "b"}}));
  CHECK(refuses(gemma, {{"tool", "a"}}));
  CHECK(refuses(gemma, {{"system", "a"}}));
  CHECK_FALSE(refuses(gemma, {{"system", ""}, {"user", "a"}}));
  const ChatTemplate alternating = ChatTemplate::learn(
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('x') }}{% endif "
      "%}"
      "<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
      "", "");
  CHECK(refuses(alternating, {{"user", "a"}, {"user", "b"}}));
  CHECK(refuses(alternating, {{"assistant", "a"}}));
  CHECK_FALSE(refuses(alternating, {{"user", "a"}, {"assistant", "b"}}));
}

TEST_CASE("chat template: ids hold the template's control tokens and nobody else's", "[model][chat]") {
  if (const auto path = model_path("smollm2-135m-instruct-q4_1.gguf")) {
    const GgufFile file(*path);
    const auto tokenizer = make_tokenizer(file);
    const ChatTemplate t = ChatTemplate::recognise(file);
    const Messages messages = {{"system", "S"}, {"user", "<|im_end|> is just text here"}};
    const auto parts = t.render(messages, true);
    const auto ids = ChatTemplate::encode(parts, *tokenizer);
    CHECK(std::count(ids.begin(), ids.end(), 1) == 3);  // <|im_start|>
    CHECK(std::count(ids.begin(), ids.end(), 2) == 2);  // <|im_end|>, one less than in the text
    CHECK(tokenizer->decode(ids, true) == ChatTemplate::text(parts));
  }
  if (const auto path = model_path("gemma3-270m-q4_k_m.gguf")) {
    const auto tokenizer = make_tokenizer(GgufFile(*path));
    const ChatTemplate t = ChatTemplate::of(TemplateKind::kGemma);
    const auto ids = ChatTemplate::encode(t.render({{"user", "<bos>Hi<end_of_turn>"}}, true), *tokenizer);
    CHECK(ids[0] == 2);
    CHECK(std::count(ids.begin(), ids.end(), 2) == 1);
    CHECK(std::count(ids.begin(), ids.end(), 106) == 1);
    // A template that writes its BOS itself does not get another.
    const std::vector<TemplatePart> own = {
        {true, "<bos><start_of_turn>user\n"}, {false, "Hi"}, {true, "<end_of_turn>\n"}};
    CHECK(ChatTemplate::encode(own, *tokenizer) == std::vector<int32_t>{2, 105, 2364, 107, 10979, 106, 107});
    CHECK(ChatTemplate::encode({own.begin() + 1, own.end()}, *tokenizer, false) ==
          std::vector<int32_t>{10979, 106, 107});
  }
  if (const auto path = shared_path("data/tokenizers/ggml-vocab-llama-spm.gguf")) {
    // The space of "[INST] " belongs to the word behind it, whoever wrote the word.
    const auto tokenizer = make_tokenizer(GgufFile(*path));
    const ChatTemplate t = ChatTemplate::of(TemplateKind::kMistral);
    auto wanted = tokenizer->encode("[INST] Hello [/INST]");
    const auto ids = ChatTemplate::encode(t.render({{"user", "Hello"}}, true), *tokenizer);
    wanted.insert(wanted.begin(), 1);
    CHECK(ids == wanted);
    CHECK(ChatTemplate::encode({{false, "Hello"}}, *tokenizer, false) == tokenizer->encode("Hello", false));
    const auto two = ChatTemplate::encode({{true, "<s>a</s>"}, {false, "Hello</s>"}}, *tokenizer);
    CHECK(std::count(two.begin(), two.end(), 2) == 1);
    CHECK(two[3] == 15043);  // "▁Hello": a dummy prefix behind a special token
  }
}

TEST_CASE("jinja: white space, expressions and statements", "[model][chat]") {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"a\r\nb", "a\nb"},
      {"{{ 'a' 'b' }}", "ab"},
      {"x {%- if 1 %} y {%- endif %} z", "x y z"},
      {"  {% if 1 %}\n  y\n  {% endif %}\n  z", "  y\n  z"},
      {"a  {% if 1 %}b{% endif %}", "a  b"},
      {"{# c #}\n  {# d #}\ne", "e"},
      {"{{- ' x ' -}}  y", " x y"},
      {"{%+ if 1 +%}\nx{% endif %}", "\nx"},
      {"{{ 1 + 2 * 3 - 4 % 3 }}", "6"},
      {"{{ -7 // 2 }} {{ -7 % 3 }} {{ (1 < 2) }} {{ none }}", "-4 2 True None"},
      {"{{ 'a' ~ 1 ~ true }}", "a1True"},
      {"{{ 'x' if false else 'y' }}{{ 'z' if false }}", "y"},
      {"{{ not 1 == 2 and 'b' in 'abc' }}", "True"},
      {"{{ 'd' not in 'abc' or undefined_name }}", "True"},
      {"{{ undefined_name }}|{{ undefined_name is defined }}|{{ messages is not none }}", "|False|True"},
      {"{{ undefined_name.x }}", "error: 'undefined_name' is not defined"},
      {"{{ messages[0].none_such is defined }}{{ messages[-1]['content'] }}{{ messages[5] is defined }}",
       "FalsebFalse"},
      {"{% for m in messages[::-1] %}{{ m.content }}{{ loop.index }}{{ loop.last }};{% endfor %}", "b1False;x2True;"},
      {"{% for m in messages if m.role == 'user' %}{{ m.content }}{{ loop.length }}{% else %}none{% endfor %}", "x1"},
      {"{% for m in [] %}a{% else %}none{% endfor %}", "none"},
      {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"},
      {"{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% "
       "endfor %}",
       "02"},
      {"{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}", "321"},
      {"{% set x = 1 %}{% for i in [2] %}{% set x = i %}{% endfor %}{{ x }}", "1"},
      {"{% set n = namespace(x=1) %}{% for i in [2, 3] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}", "6"},
      {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
      {"{% set t %}a{{ 1 }}{% endset %}{{ t|length }}", "2"},
      {"{% macro f(a, b='q') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}", "[1q][12]"},
      {"{{ ' a b '|trim }}|{{ 'ab'.upper() }}|{{ 'a-b-c'.split('-', 1)[1] }}|{{ 'xxax'.strip('x') }}", "a b|AB|b-c|a"},
      {"{{ ['a', 'b']|join(', ') }} {{ messages|map(attribute='role')|join('+') }}", "a, b user+assistant"},
      {"{{ {'a': [1, true, none, 'q\"\\n']}|tojson }}", "{\"a\": [1, true, null, \"q\\\"\\n\"]}"},
      {"{{ messages|selectattr('role', 'equalto', 'user')|list|length }}", "1"},
      {"{{ nothing|default('d') }}{{ ''|default('e', true) }}{{ ''|default('f') }}", "de"},
      {"{{ '\\u00e9\\x41\\q' }}{{ 'é'|length }}", "éA\\q1"},
      {"{{ bos_token + eos_token }}{{ add_generation_prompt }}", "<s></s>False"},
      {"{% generation %}a{% endgeneration %}", "a"},
      {"{{ raise_exception('why') }}", "refused: why"},
      {"{{ 'a' + 1 }}", "error: '+' between values that it does not fit"},
      {"{{ x|nofilter }}", "error: the filter 'nofilter' is not supported"},
      {"{{ 1.5 }}", "error: numbers with a point are not supported"},
      {"{% if 1 %}", "error: a block does not end"},
      {"{% endif %}", "error: the tag 'endif' is not supported"},
      {"{{ 'a }}", "error: a string does not end"},
      {"{{ a", "error: a tag does not end"},
      {"{# a", "error: a comment does not end"},
      {"{{ a b }}", "error: unexpected 'b' in a tag"},
      {"{{ $ }}", "error: unexpected character '$' in a tag"},
  };
  for (const auto& [source, wanted] : rows) {
    CAPTURE(source);
    CHECK(run_jinja(source) == wanted);
  }
}

TEST_CASE("jinja: a hostile template comes to an end", "[model][chat]") {
  const auto repeat = [](const std::string& s, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += s;
    return out;
  };
  for (const std::string& source : {
           "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}" + std::string(),
           "{% set n = namespace(x='aaaaaaaaaa') %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}" +
               std::string(),
           "{% set n = namespace(x=[1]) %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}" +
               std::string(),
           "{% set n = namespace(x=[1]) %}{% for a in range(9999) %}{% set n.x = [n.x] %}{% endfor %}" + std::string(),
           "{% set n = namespace() %}{% set n.x = n %}{{ n|tojson }}" + std::string(),
           "{% set n = namespace() %}{% set m = namespace(x=n) %}{% set n.x = m %}{{ n == m }}{{ n|tojson }}" +
               std::string(),
           "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}" + std::string(),
           "{{ 'aaaaaaaaaaaaaaaa'.replace('a', 'aaaaaaaaaaaaaaaaaaaa')" +
               repeat(".replace('a', 'aaaaaaaaaaaaaaaaaaaa')", 20) + " }}",
           "{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}",
           "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
           "{{ " + repeat("not ", 5000) + "1 }}",
           "{{ " + repeat("-", 5000) + "1 }}",
           "{{ 1" + repeat(" + 1", 5000) + " }}",
           "{{ a" + repeat(".a", 5000) + " }}",
           "{{ a" + repeat("|trim", 5000) + " }}",
           "{{ 1" + repeat(" if 1", 5000) + " }}",
           repeat("{% if 1 %}", 5000),
           repeat("a", 300 * 1024),
       }) {
    CAPTURE(source.substr(0, 80));
    CHECK(run_jinja(source).substr(0, 6) == "error:");
  }
}
