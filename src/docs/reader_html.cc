// HTML through gumbo; what gumbo must not be given (absurd nesting) goes through a plain tag stripper.
#include <gumbo.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <memory>
#include <new>
#include <unordered_set>
#include <vector>

#include "base/text.h"
#include "docs/encoding.h"
#include "docs/html_blocks.h"
#include "docs/html_strip.h"
#include "docs/reader.h"

namespace cento {
namespace {

// Gumbo walks the stack of open elements at many tags and frees its tree by recursion. Real pages stay below 100
// levels.
constexpr int kDepthMax = 400;
// Misnested formatting elements can make its tree quadratic in the page: this much memory a byte of the page, then the
// stripper. Ordinary pages need 7 to 11.
constexpr size_t kArenaBase = size_t{16} << 20, kArenaPerByte = 200, kArenaMax = size_t{1} << 30;

// All of gumbo's memory, given back at once: nothing is freed alone, so no recursion frees the tree. When the limit is
// reached the allocation jumps out of the parser; only C frames and `allocate` lie between, none with a destructor.
struct Arena {
  std::vector<std::unique_ptr<char[]>> blocks;
  size_t used = 0, left = 0, limit = 0;
  char* next = nullptr;
  std::jmp_buf out_of_memory;

  static void* allocate(void* self, size_t n) {
    auto& arena = *static_cast<Arena*>(self);
    constexpr size_t kAlign = alignof(std::max_align_t), kBlock = size_t{1} << 18;
    n = (n + kAlign - 1) / kAlign * kAlign;
    if (n > arena.left) {
      const size_t size = std::max(n, kBlock);
      if (size > arena.limit - arena.used || !arena.grow(size)) std::longjmp(arena.out_of_memory, 1);
    }
    void* p = arena.next;
    arena.next += n;
    arena.left -= n;
    return p;
  }
  static void release(void*, void*) {}

  bool grow(size_t size) {
    char* block = new (std::nothrow) char[size];
    if (block == nullptr) return false;
    blocks.emplace_back(block);
    used += size;
    next = block;
    left = size;
    return true;
  }
};

enum class Role { kInline, kBlock, kDropped, kHeading, kItem, kPre, kRow, kCell, kTable, kBreak, kTitle };

Role role_of(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_SCRIPT:
    case GUMBO_TAG_STYLE:
    case GUMBO_TAG_TEMPLATE:
    case GUMBO_TAG_NOSCRIPT:
    case GUMBO_TAG_NAV:
    case GUMBO_TAG_SELECT:
    case GUMBO_TAG_OPTION:
    case GUMBO_TAG_BUTTON:
    case GUMBO_TAG_SVG:
    case GUMBO_TAG_IFRAME:
    case GUMBO_TAG_OBJECT:
    case GUMBO_TAG_EMBED:
    case GUMBO_TAG_CANVAS:
    case GUMBO_TAG_AUDIO:
    case GUMBO_TAG_VIDEO:
    case GUMBO_TAG_NOFRAMES:
    case GUMBO_TAG_NOEMBED:
    case GUMBO_TAG_DATALIST:
      return Role::kDropped;
    case GUMBO_TAG_H1:
    case GUMBO_TAG_H2:
    case GUMBO_TAG_H3:
    case GUMBO_TAG_H4:
    case GUMBO_TAG_H5:
    case GUMBO_TAG_H6:
      return Role::kHeading;
    case GUMBO_TAG_LI:
      return Role::kItem;
    case GUMBO_TAG_PRE:
    case GUMBO_TAG_LISTING:
    case GUMBO_TAG_XMP:
    case GUMBO_TAG_PLAINTEXT:
      return Role::kPre;
    case GUMBO_TAG_TR:
      return Role::kRow;
    case GUMBO_TAG_TD:
    case GUMBO_TAG_TH:
      return Role::kCell;
    case GUMBO_TAG_TABLE:
      return Role::kTable;
    case GUMBO_TAG_BR:
      return Role::kBreak;
    case GUMBO_TAG_TITLE:
      return Role::kTitle;
    case GUMBO_TAG_P:
    case GUMBO_TAG_DIV:
    case GUMBO_TAG_SECTION:
    case GUMBO_TAG_ARTICLE:
    case GUMBO_TAG_ASIDE:
    case GUMBO_TAG_HEADER:
    case GUMBO_TAG_FOOTER:
    case GUMBO_TAG_MAIN:
    case GUMBO_TAG_BODY:
    case GUMBO_TAG_HTML:
    case GUMBO_TAG_UL:
    case GUMBO_TAG_OL:
    case GUMBO_TAG_DL:
    case GUMBO_TAG_DT:
    case GUMBO_TAG_DD:
    case GUMBO_TAG_BLOCKQUOTE:
    case GUMBO_TAG_FIGURE:
    case GUMBO_TAG_FIGCAPTION:
    case GUMBO_TAG_ADDRESS:
    case GUMBO_TAG_FORM:
    case GUMBO_TAG_FIELDSET:
    case GUMBO_TAG_LEGEND:
    case GUMBO_TAG_DETAILS:
    case GUMBO_TAG_SUMMARY:
    case GUMBO_TAG_HR:
    case GUMBO_TAG_CENTER:
    case GUMBO_TAG_CAPTION:
    case GUMBO_TAG_THEAD:
    case GUMBO_TAG_TBODY:
    case GUMBO_TAG_TFOOT:
    case GUMBO_TAG_HEAD:
    case GUMBO_TAG_TEXTAREA:
    case GUMBO_TAG_HGROUP:
    case GUMBO_TAG_MENU:
      return Role::kBlock;
    default:
      return Role::kInline;
  }
}

bool has_value(const GumboElement& element, const char* name, std::string_view list) {
  const GumboAttribute* attribute = gumbo_get_attribute(&element.attributes, name);
  return attribute != nullptr && name_is_one_of(to_lower_ascii(attribute->value), list);
}

// Parts of a page that are about the site, or that a reader does not see.
bool is_boilerplate(const GumboElement& element) {
  return has_value(element, "role", " navigation search menu menubar toolbar ") ||
         has_value(element, "aria-hidden", " true ") || gumbo_get_attribute(&element.attributes, "hidden") != nullptr;
}

// Walks gumbo's tree with a stack of its own.
class HtmlWalker {
 public:
  HtmlWalker(uint32_t n_lines, bool keep_navigation) : builder_(n_lines), keep_navigation_(keep_navigation) {}

  Document walk(const GumboNode* root) {
    find_layout_tables(root);
    push(root);
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      const GumboVector& children = children_of(top.node);
      if (top.next < children.length) {
        const auto* child = static_cast<const GumboNode*>(children.data[top.next++]);
        visit(child);
      } else {
        const Frame done = top;
        stack_.pop_back();
        leave(done);
      }
    }
    builder_.flush(BlockKind::kParagraph);
    finish_title();
    return std::move(builder_.document);
  }

 private:
  struct Frame {
    const GumboNode* node;
    Role role;
    unsigned int next = 0;
    int table = -1;  // of a table element that is one of data
  };

  static const GumboVector& children_of(const GumboNode* node) {
    return node->type == GUMBO_NODE_DOCUMENT ? node->v.document.children : node->v.element.children;
  }

  void push(const GumboNode* node) {
    stack_.push_back({node, node->type == GUMBO_NODE_DOCUMENT ? Role::kBlock : role_of(node->v.element.tag)});
  }

  void visit(const GumboNode* node) {
    switch (node->type) {
      case GUMBO_NODE_TEXT:
      case GUMBO_NODE_CDATA:
      case GUMBO_NODE_WHITESPACE:
        if (in_title_) {
          builder_.document.title += node->v.text.text;
        } else {
          builder_.text(node->v.text.text, node->v.text.start_pos.line, pre_ > 0);
        }
        return;
      case GUMBO_NODE_ELEMENT:
        enter(node);
        return;
      default:
        return;  // comments, templates
    }
  }

  void enter(const GumboNode* node) {
    const GumboElement& element = node->v.element;
    const Role role = role_of(element.tag);
    const bool navigation = element.tag == GUMBO_TAG_NAV || is_boilerplate(element);
    if (role == Role::kDropped && !(keep_navigation_ && element.tag == GUMBO_TAG_NAV)) return;
    if (navigation && !keep_navigation_) return;
    if (element.tag_namespace != GUMBO_NAMESPACE_HTML && element.tag_namespace != GUMBO_NAMESPACE_MATHML) return;
    before(role);
    push(node);
    if (role == Role::kTable && layout_.count(node) == 0) {
      stack_.back().table = static_cast<int>(builder_.document.tables.size());
      builder_.document.tables.push_back({});
      tables_.push_back({stack_.back().table, false});
    }
    if (role == Role::kPre) ++pre_;
    if (role == Role::kItem && rows_ == 0) builder_.text("- ", element.start_pos.line, true);
    if (role == Role::kRow && in_data_table()) ++rows_;
    if (role == Role::kTitle) in_title_ = builder_.document.title.empty();
  }

  bool in_data_table() const { return !tables_.empty(); }

  // Text gathered so far ends in front of a block, except inside a row of a table of data, which is one line.
  void before(Role role) {
    if (role == Role::kBreak) {
      builder_.line_break();
    } else if (rows_ > 0) {
      if (role != Role::kInline) builder_.text(" ", 0, false);
    } else if (role != Role::kInline && role != Role::kTitle) {
      end_block();
    }
  }

  void end_block() {
    if (builder_.empty() || trim(builder_.pending()) == "-") {
      // "- " of a list item whose text is in a paragraph of its own waits for it.
      return;
    }
    const bool item = builder_.pending().compare(0, 2, "- ") == 0;
    builder_.flush(pre_ > 0 ? BlockKind::kCode : item ? BlockKind::kListItem : BlockKind::kParagraph);
  }

  void leave(const Frame& frame) {
    switch (frame.role) {
      case Role::kHeading:
        if (rows_ == 0) builder_.flush(BlockKind::kHeading, frame.node->v.element.tag - GUMBO_TAG_H1 + 1);
        return;
      case Role::kPre:
        if (rows_ == 0) builder_.flush(BlockKind::kCode);
        --pre_;
        return;
      case Role::kCell:
        if (rows_ > 0) {
          builder_.pending() += " | ";
        } else {
          end_block();
        }
        return;
      case Role::kRow:
        leave_row(frame.node);
        return;
      case Role::kTable:
        end_block();
        if (frame.table >= 0) leave_table(frame.table);
        return;
      case Role::kTitle:
        in_title_ = false;
        return;
      case Role::kItem:
        if (rows_ == 0) {
          end_block();
          if (builder_.empty() || trim(builder_.pending()) == "-") builder_.pending().clear();
        }
        return;
      case Role::kBlock:
        if (rows_ == 0) end_block();
        return;
      default:
        return;
    }
  }

  void leave_row(const GumboNode* row) {
    if (rows_ == 0) return end_block();
    --rows_;
    std::string& text = builder_.pending();
    std::replace(text.begin(), text.end(), '\n', ' ');
    while (!text.empty() && (text.back() == ' ' || text.back() == '|')) text.pop_back();
    auto& [table, any] = tables_.back();
    if (!any && is_header_row(row) && !is_blank(text)) {
      builder_.document.tables[static_cast<size_t>(table)].head = clean_text(text);
    }
    const bool head = !any && !builder_.document.tables[static_cast<size_t>(table)].head.empty();
    any = any || !is_blank(text);
    // The header row is a row as well, so that a table of nothing else is not lost; leave_table drops it otherwise.
    builder_.flush(BlockKind::kTableRow, head ? -1 : 0, table);
  }

  static bool is_header_row(const GumboNode* row) {
    const GumboVector& cells = row->v.element.children;
    bool any = false;
    for (unsigned int i = 0; i < cells.length; ++i) {
      const auto* cell = static_cast<const GumboNode*>(cells.data[i]);
      if (cell->type != GUMBO_NODE_ELEMENT) continue;
      if (cell->v.element.tag != GUMBO_TAG_TH) return false;
      any = true;
    }
    return any;
  }

  void leave_table(int table) {
    tables_.pop_back();
    auto& blocks = builder_.document.blocks;
    for (size_t i = blocks.size(); i-- > 0 && blocks[i].table == table;) {
      if (blocks[i].level != -1) continue;
      blocks[i].level = 0;
      const bool more = i + 1 < blocks.size() && blocks[i + 1].table == table;
      if (more) {
        blocks[i + 1].line_from = blocks[i].line_from;
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        builder_.document.tables[static_cast<size_t>(table)].head.clear();
      }
      break;
    }
  }

  // Tables that hold tables, headings, code or lists are there for the layout: their cells are read as blocks.
  void find_layout_tables(const GumboNode* root) {
    std::vector<const GumboNode*> open{root};
    while (!open.empty()) {
      const GumboNode* node = open.back();
      open.pop_back();
      if (node->type == GUMBO_NODE_ELEMENT) {
        const Role role = role_of(node->v.element.tag);
        if (role == Role::kTable || role == Role::kHeading || role == Role::kPre || role == Role::kItem) {
          for (const GumboNode* up = node->parent; up != nullptr; up = up->parent) {
            if (up->type != GUMBO_NODE_ELEMENT || up->v.element.tag != GUMBO_TAG_TABLE) continue;
            if (!layout_.insert(up).second) break;
          }
        }
      }
      if (node->type != GUMBO_NODE_ELEMENT && node->type != GUMBO_NODE_DOCUMENT) continue;
      const GumboVector& children = children_of(node);
      for (unsigned int i = 0; i < children.length; ++i)
        open.push_back(static_cast<const GumboNode*>(children.data[i]));
    }
  }

  // "Tides · Handbook" above a page headed "Tides" is the page's name and the site's: the first heading says it
  // shorter.
  void finish_title() {
    Document& document = builder_.document;
    std::string title = clean_text(document.title), folded;
    for (const char c : title) {
      const bool space = c == ' ' || c == '\n' || c == '\t';
      if (!space || (!folded.empty() && folded.back() != ' ')) folded += space ? ' ' : c;
    }
    document.title = std::string(trim(folded));
    for (const Block& block : document.blocks) {
      if (block.kind != BlockKind::kHeading) continue;
      if (document.title.empty() || document.title.compare(0, block.text.size(), block.text) == 0)
        document.title = block.text;
      break;
    }
  }

  BlockBuilder builder_;
  bool keep_navigation_, in_title_ = false;
  int pre_ = 0, rows_ = 0;
  std::vector<Frame> stack_;
  std::vector<std::pair<int, bool>> tables_;  // open tables of data; whether a row was seen
  std::unordered_set<const GumboNode*> layout_;
};

// False when gumbo ran out of its memory.
bool parse(Arena& arena, const GumboOptions& options, std::string_view text, GumboOutput** out) {
  if (setjmp(arena.out_of_memory) != 0) return false;
  *out = gumbo_parse_with_options(&options, text.data(), text.size());
  return true;
}

bool holds_text(const Document& document) {
  return std::any_of(document.blocks.begin(), document.blocks.end(),
                     [](const Block& b) { return b.kind != BlockKind::kHeading; });
}

}  // namespace

Document read_html(std::string_view text) {
  if (deepest_nesting(text) > kDepthMax || text.size() > kArenaMax / kArenaPerByte * 4) return strip_tags(text);
  Arena arena;
  arena.limit = std::min(kArenaMax, kArenaBase + text.size() * kArenaPerByte);
  GumboOptions options = kGumboDefaultOptions;
  options.allocator = &Arena::allocate;
  options.deallocator = &Arena::release;
  options.userdata = &arena;
  options.max_errors = 0;
  GumboOutput* output = nullptr;
  if (!parse(arena, options, text, &output)) return strip_tags(text);
  const auto n_lines = static_cast<uint32_t>(std::max<size_t>(1, lines_of(text).size()));
  Document document = HtmlWalker(n_lines, false).walk(output->document);
  if (!holds_text(document)) document = HtmlWalker(n_lines, true).walk(output->document);
  return document;
}

}  // namespace cento