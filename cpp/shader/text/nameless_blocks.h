// Blocks without an instance name, whose members are names of the whole text.
#pragma once

#include <string>
#include <string_view>

#include "shader/text/source_set.h"

namespace pumice {

// Says which member another block without an instance name shares with this one, and where that block is: ": 'k' is a member of block 'A'
// in kernel:1, too; ..". Empty where no such block is found, as where a macro makes it.
std::string shared_member(const SourceSet& sources, std::string_view block);

}  // namespace pumice
