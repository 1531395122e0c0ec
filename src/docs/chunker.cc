#include "docs/chunker.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "docs/split.h"
#include "docs/utf8.h"

namespace cento {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

// A part of a chunk's body.
struct Piece {
  BlockKind kind = BlockKind::kParagraph;
  std::string text;
  uint32_t line_from = 1, line_to = 1;
  int table = -1;
  size_t tokens = 0;
};

struct Item {
  size_t block = kNone, section = kNone;  // one of the two
};

struct Section {
  std::string heading;
  int level = 0;
  uint32_t line_from = 1, line_to = 1;
  std::vector<Item> items;
  size_t tokens = 0;  // of all in it, its heading too
};

using Trail = std::vector<size_t>;  // sections from the outermost to the innermost

bool same_words(const std::string& a, const std::string& b) { return to_lower_ascii(a) == to_lower_ascii(b); }

class Chunker {
 public:
  Chunker(const Document& document, const TokenCounter& counter, uint32_t budget)
      : document_(document), counter_(counter), budget_(std::clamp(budget, kChunkTokensMin, kChunkTokensMax)) {}

  std::vector<NewChunk> chunk() {
    build_sections();
    measure();
    said_.assign(sections_.size(), false);
    pack(0, {});
    if (out_.empty() && !document_.title.empty()) {  // a title and nothing else
      emit("", {{BlockKind::kParagraph, document_.title, 1, 1, -1, 0}}, {});
    }
    return std::move(out_);
  }

 private:
  size_t count(std::string_view text) const { return counter_.count(text); }

  void build_sections() {
    sections_.emplace_back();
    std::vector<size_t> open{0};
    for (size_t b = 0; b < document_.blocks.size(); ++b) {
      const Block& block = document_.blocks[b];
      if (block.kind != BlockKind::kHeading) {
        if (!is_blank(block.text)) sections_[open.back()].items.push_back({b, kNone});
        continue;
      }
      const int level = std::clamp(block.level, 1, 16);
      while (sections_[open.back()].level >= level) open.pop_back();
      if (is_blank(block.text)) continue;
      sections_[open.back()].items.push_back({kNone, sections_.size()});
      open.push_back(sections_.size());
      Section section;
      section.heading = block.text;
      section.level = level;
      section.line_from = block.line_from;
      section.line_to = block.line_to;
      sections_.push_back(std::move(section));
    }
  }

  // Sizes from the last section to the first: a section's parts come after it.
  void measure() {
    block_tokens_.resize(document_.blocks.size());
    for (size_t b = 0; b < document_.blocks.size(); ++b) block_tokens_[b] = count(document_.blocks[b].text) + 1;
    for (const Table& table : document_.tables) table_tokens_.push_back(table.head.empty() ? 0 : count(table.head) + 1);
    for (size_t s = sections_.size(); s-- > 0;) {
      Section& section = sections_[s];
      section.tokens = section.heading.empty() ? 0 : count(section.heading) + 4;
      int table = -1;
      for (const Item& item : section.items) {
        if (item.section != kNone) {
          section.tokens += sections_[item.section].tokens;
          table = -1;
          continue;
        }
        const int here = document_.blocks[item.block].table;
        section.tokens += block_tokens_[item.block];
        if (here >= 0 && here != table) section.tokens += table_tokens_[static_cast<size_t>(here)];
        table = here;
      }
    }
  }

  // Title and headings in one line, shortened from the middle until it fits a share of the budget.
  std::string header_for(const Trail& trail) const {
    std::vector<std::string> parts;
    if (!document_.title.empty()) parts.push_back(document_.title);
    for (const size_t index : trail) {
      const std::string& heading = sections_[index].heading;
      if (parts.empty() || !same_words(parts.back(), heading)) parts.push_back(heading);
    }
    const size_t room = std::min<size_t>(kHeaderTokensMax, budget_ / 4);
    const auto joined = [](const std::vector<std::string>& list) {
      std::string text;
      for (const std::string& part : list) text += (text.empty() ? "" : " > ") + part;
      std::replace(text.begin(), text.end(), '\n', ' ');
      return text;
    };
    std::string header = joined(parts);
    while (parts.size() > 2 && count(header) > room) {
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(parts.size() / 2));
      header = joined(parts);
    }
    if (parts.size() == 2 && count(header) > room) header = parts[1];
    std::replace(header.begin(), header.end(), '\n', ' ');
    if (header.size() > room * 16) header.resize(utf8_floor(header, room * 16));
    while (!header.empty() && count(header + "…") > room) header.resize(utf8_floor(header, header.size() * 3 / 4));
    if (!parts.empty() && !header.empty() && header.size() < parts.back().size() && count(header) <= room)
      header += "…";
    return header;
  }

  size_t room_below(const std::string& header) const {
    const size_t taken = header.empty() ? 1 : count(header) + 3;
    return taken < budget_ ? budget_ - taken : 1;
  }

  struct Draft {
    std::vector<Piece> pieces;
    size_t tokens = 0;
    size_t sole = kNone;  // the only section in it, if nothing else is
    int table() const { return pieces.empty() ? -1 : pieces.back().table; }
  };

  void pack(size_t index, const Trail& trail) {
    const Section& section = sections_[index];
    const std::string header = header_for(trail);
    const size_t room = room_below(header);
    if (section.items.empty() && !section.heading.empty()) {  // a heading and nothing below it
      Draft alone;
      alone.pieces.push_back(heading_piece(section));
      const Trail above(trail.begin(), trail.end() - 1);
      emit(header_for(above), std::move(alone.pieces), above);
      return;
    }
    Draft draft;
    for (const Item& item : section.items) {
      if (item.block != kNone) {
        add_block(item.block, room, header, trail, draft);
      } else {
        add_section(item.section, room, header, trail, draft);
      }
    }
    flush(draft, header, trail);
  }

  void add_section(size_t index, size_t room, const std::string& header, const Trail& trail, Draft& draft) {
    const Section& section = sections_[index];
    const bool joins = draft.tokens + section.tokens <= room;
    if (!joins) flush(draft, header, trail, true);
    if (draft.tokens + section.tokens <= room) {
      draft.sole = draft.pieces.empty() ? index : kNone;
      flatten(index, draft);
      return;
    }
    flush(draft, header, trail);
    Trail below = trail;
    below.push_back(index);
    pack(index, below);
  }

  void add_block(size_t b, size_t room, const std::string& header, const Trail& trail, Draft& draft) {
    const Block& block = document_.blocks[b];
    const size_t head = block.table >= 0 ? table_tokens_[static_cast<size_t>(block.table)] : 0;
    const bool carries_head = head > 0 && head * 3 <= room;
    const size_t cost = block_tokens_[b] + (carries_head && draft.table() != block.table ? head : 0);
    if (draft.tokens + cost <= room) return append(draft, whole(b), carries_head);
    flush(draft, header, trail, true);
    const size_t alone = block_tokens_[b] + (carries_head ? head : 0);
    if (draft.tokens + alone <= room) return append(draft, whole(b), carries_head);
    flush(draft, header, trail);
    if (alone <= room) return append(draft, whole(b), carries_head);
    // The header row of a table too wide to be repeated is text of its own once, in front of the first row.
    if (head > 0 && !carries_head && is_first_row(b)) {
      for (Piece& piece : cut(document_.tables[static_cast<size_t>(block.table)].head, block, room)) {
        piece.table = -1;
        flush(draft, header, trail);
        append(draft, std::move(piece), false);
      }
    }
    const size_t text_room = carries_head ? room - head : room;
    for (Piece& piece : cut(block.text, block, text_room > 1 ? text_room - 1 : 1)) {
      if (draft.tokens + piece.tokens + (carries_head ? head : 0) > room) flush(draft, header, trail);
      append(draft, std::move(piece), carries_head);
    }
  }

  bool is_first_row(size_t b) const { return b == 0 || document_.blocks[b - 1].table != document_.blocks[b].table; }

  std::vector<Piece> cut(const std::string& text, const Block& block, size_t room) const {
    const bool by_lines = block.kind == BlockKind::kCode || block.kind == BlockKind::kTableRow;
    const auto n_breaks = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    const bool exact = n_breaks == block.line_to - block.line_from;
    std::vector<Piece> pieces;
    size_t at = 0;
    uint32_t line = block.line_from;
    for (const TextRange& range : split_text(text, by_lines ? SplitAt::kLines : SplitAt::kSentences, room,
                                             [&](std::string_view s) { return count(s); })) {
      Piece piece{block.kind,      text.substr(range.begin, range.end - range.begin),
                  block.line_from, block.line_to,
                  block.table,     0};
      if (exact) {
        line += static_cast<uint32_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                                                 text.begin() + static_cast<std::ptrdiff_t>(range.begin), '\n'));
        piece.line_from = line;
        line += static_cast<uint32_t>(std::count(piece.text.begin(), piece.text.end(), '\n'));
        piece.line_to = line;
        at = range.end;
      }
      piece.tokens = count(piece.text) + 1;
      pieces.push_back(std::move(piece));
    }
    return pieces;
  }

  Piece whole(size_t b) const {
    const Block& block = document_.blocks[b];
    return {block.kind, block.text, block.line_from, block.line_to, block.table, block_tokens_[b]};
  }

  static Piece heading_piece(const Section& section) {
    return {BlockKind::kHeading,
            std::string(static_cast<size_t>(std::clamp(section.level, 1, 6)), '#') + " " + section.heading,
            section.line_from,
            section.line_to,
            -1,
            0};
  }

  void append(Draft& draft, Piece piece, bool carries_head) const {
    draft.sole = kNone;
    if (carries_head && draft.table() != piece.table) {
      const auto t = static_cast<size_t>(piece.table);
      draft.tokens += table_tokens_[t];
      draft.pieces.push_back({BlockKind::kTableRow, document_.tables[t].head, piece.line_from, piece.line_from,
                              piece.table, table_tokens_[t]});
    }
    draft.tokens += piece.tokens;
    draft.pieces.push_back(std::move(piece));
  }

  // A whole section into the draft; its parts in order, without recursion.
  void flatten(size_t index, Draft& draft) const {
    const size_t before = draft.tokens, sole = draft.sole;
    std::vector<std::pair<size_t, size_t>> open{{index, 0}};
    draft.pieces.push_back(heading_piece(sections_[index]));
    while (!open.empty()) {
      auto& [s, next] = open.back();
      if (next == sections_[s].items.size()) {
        open.pop_back();
        continue;
      }
      const Item item = sections_[s].items[next++];
      if (item.block != kNone) {
        const int table = document_.blocks[item.block].table;
        append(draft, whole(item.block), table >= 0 && table_tokens_[static_cast<size_t>(table)] > 0);
      } else {
        draft.pieces.push_back(heading_piece(sections_[item.section]));
        open.push_back({item.section, 0});
      }
    }
    draft.tokens = before + sections_[index].tokens;
    draft.sole = sole;
  }

  // Ends a chunk. With `goes_on`, a last line such as "The options are:" stays for the chunk that follows.
  void flush(Draft& draft, const std::string& header, const Trail& trail, bool goes_on = false) {
    Draft kept;
    if (goes_on && draft.pieces.size() > 1) {
      const Piece& last = draft.pieces.back();
      if (last.kind == BlockKind::kParagraph && last.text.back() == ':' && last.tokens * 4 < budget_ &&
          draft.pieces[draft.pieces.size() - 2].kind != BlockKind::kHeading) {
        kept.tokens = last.tokens;
        kept.pieces.push_back(std::move(draft.pieces.back()));
        draft.pieces.pop_back();
      }
    }
    if (!draft.pieces.empty()) {
      if (draft.sole != kNone) {
        emit_section(draft, trail);
      } else {
        emit(header, std::move(draft.pieces), trail);
      }
    }
    draft = std::move(kept);
  }

  // A section that has a chunk to itself: its heading goes into the header, and so on while it holds one section only.
  void emit_section(Draft& draft, Trail trail) {
    size_t index = draft.sole, n_headings = 0;
    while (true) {
      const Section& section = sections_[index];
      if (section.items.empty()) break;
      trail.push_back(index);
      ++n_headings;
      if (section.items.size() != 1 || section.items[0].section == kNone) break;
      index = section.items[0].section;
    }
    n_headings = std::min(n_headings, draft.pieces.size() - 1);
    const uint32_t from = draft.pieces.front().line_from;
    draft.pieces.erase(draft.pieces.begin(), draft.pieces.begin() + static_cast<std::ptrdiff_t>(n_headings));
    draft.pieces.front().line_from = std::min(from, draft.pieces.front().line_from);
    const std::string header = header_for(trail);
    emit(header, std::move(draft.pieces), trail);
  }

  // What a shortened header leaves out is said in the body of the first chunk below it: no heading is lost.
  void say_left_out(const std::string& header, const Trail& trail, std::vector<Piece>& pieces) {
    std::vector<Piece> left_out;
    const uint32_t line = pieces.front().line_from;
    if (!title_said_ && !document_.title.empty()) {
      title_said_ = true;
      const bool is_heading = !trail.empty() && same_words(sections_[trail[0]].heading, document_.title);
      const bool is_body = pieces[0].text.find(document_.title) != std::string::npos;
      if (header.find(document_.title) == std::string::npos && !is_heading && !is_body) {
        left_out.push_back({BlockKind::kHeading, document_.title, line, line, -1, 0});
      }
    }
    for (const size_t index : trail) {
      if (said_[index]) continue;
      said_[index] = true;
      if (header.find(sections_[index].heading) != std::string::npos) continue;
      left_out.push_back(heading_piece(sections_[index]));
      left_out.back().line_from = left_out.back().line_to = line;
    }
    pieces.insert(pieces.begin(), std::make_move_iterator(left_out.begin()), std::make_move_iterator(left_out.end()));
  }

  void emit(const std::string& header, std::vector<Piece> pieces, const Trail& trail) {
    say_left_out(header, trail, pieces);
    NewChunk chunk;
    chunk.header = header;
    chunk.line_from = pieces.front().line_from;
    chunk.line_to = pieces.front().line_to;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) chunk.body += joins(pieces[i - 1], pieces[i]) ? "\n" : "\n\n";
      chunk.body += pieces[i].text;
      chunk.line_from = std::min(chunk.line_from, pieces[i].line_from);
      chunk.line_to = std::max(chunk.line_to, pieces[i].line_to);
    }
    emit_exact(std::move(chunk));
  }

  // No empty line between two parts: right below each other in the source, rows, items, what follows a heading.
  static bool joins(const Piece& a, const Piece& b) {
    if (b.line_from == a.line_to + 1) return true;
    return (a.kind == BlockKind::kListItem && b.kind == BlockKind::kListItem) || (a.table >= 0 && a.table == b.table) ||
           a.kind == BlockKind::kHeading;
  }

  // The sum over the parts can be below the count of the whole: such a chunk is halved until it fits.
  void emit_exact(NewChunk chunk) {
    while (!chunk.body.empty() && (chunk.body.back() == '\n' || chunk.body.back() == ' ' || chunk.body.back() == '\t'))
      chunk.body.pop_back();
    if (is_blank(chunk.body)) return;
    const auto prompt_tokens = [&](const NewChunk& c) {
      return count(c.header.empty() ? c.body + "\n" : c.header + "\n" + c.body + "\n");
    };
    const size_t tokens = prompt_tokens(chunk);
    const size_t cut_at = tokens <= budget_ ? 0 : middle_cut(chunk.body);
    if (cut_at == 0) {
      chunk.n_tokens = static_cast<uint32_t>(tokens);
      out_.push_back(std::move(chunk));
      return;
    }
    NewChunk rest = chunk;
    rest.body = chunk.body.substr(cut_at);
    rest.body.erase(0, std::min(rest.body.find_first_not_of('\n'), rest.body.size()));
    chunk.body.resize(cut_at);
    emit_exact(std::move(chunk));
    emit_exact(std::move(rest));
  }

  const Document& document_;
  const TokenCounter& counter_;
  size_t budget_;
  std::vector<Section> sections_;
  std::vector<size_t> block_tokens_, table_tokens_;
  std::vector<bool> said_;  // of sections_: the heading is in a chunk's text
  bool title_said_ = false;
  std::vector<NewChunk> out_;
};

}  // namespace

uint32_t TokenCounter::count(std::string_view text) const {
  if (tokenizer_ != nullptr) return static_cast<uint32_t>(tokenizer_->encode(text).size());
  size_t letters = 0, marks = 0, other = 0;
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (b >= 0x80) {
      ++other;
    } else if ((b | 0x20) >= 'a' && (b | 0x20) <= 'z') {
      ++letters;
    } else if (b == ' ') {
      ++letters;
    } else {
      ++marks;
    }
  }
  return static_cast<uint32_t>((letters + 2) / 3 + marks + (other + 1) / 2);
}

std::vector<NewChunk> chunk_document(const Document& document, const TokenCounter& counter, uint32_t chunk_tokens) {
  return Chunker(document, counter, chunk_tokens).chunk();
}

}  // namespace cento
