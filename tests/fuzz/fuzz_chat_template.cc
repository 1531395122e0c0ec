// Chat templates of files, which anybody may have written: learning one ends, in a template or in an Error(kInput), and
// what was learned renders.
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "fuzz/fuzz_main.h"
#include "model/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  using namespace cento;
  std::optional<ChatTemplate> t;
  try {
    t = ChatTemplate::learn({reinterpret_cast<const char*>(data), n_bytes}, "<s>", "</s>");
  } catch (const Error& error) {
    if (error.code() != Code::kInput) std::abort();
    return 0;
  }
  for (const bool generation : {false, true})
    for (const std::vector<Message>& messages :
         {std::vector<Message>{{"user", "q"}},
          {{"system", "s"}, {"user", "q"}, {"assistant", "<think>t</think>a"}, {"user", ""}}}) {
      const std::string text = ChatTemplate::text(t->render(messages, generation));
      if (text.find('q') == std::string::npos) std::abort();
    }
  (void)t->frame("system");
  return 0;
}

std::vector<std::string> cento::test::builtin_seeds() {
  return {
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set s = messages[0].content|trim %}{% set messages = "
      "messages[1:] %}"
      "{% else %}{% set s = 'Help.' %}{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 "
      "== 0) %}"
      "{{ raise_exception('x') }}{% endif %}{%- if m.role == 'user' -%}[INST] {% if loop.first %}{{ s + '\\n\\n' }}{% "
      "endif %}"
      "{{ m.content.strip() }} [/INST]{% else %}{{ m['content'] ~ eos_token }}{% endif %}{% endfor %}",
      "{%- set ns = namespace(last=0, x=[]) -%}{% for m in messages[::-1] %}{% set ns.last = ns.last + 1 %}{% endfor %}"
      "{% macro f(a, b='c') %}[{{ a|upper|length }}{{ b }}]{% endmacro %}{% for m in messages if m.content is string "
      "%}{# note #}"
      "{{ f(m.role, b=1) }}{% set c = m.content.split('</think>')[-1].lstrip('\\n') %}{{ c }}{% if not loop.last and "
      "m.role in "
      "['user', 'assistant'] %}{{ {'a': [1, true, none]}|tojson }}{% endif %}{% endfor %}{{ range(3)|join(',') }}",
  };
}
