//! Who holds the one `/push` connection of a browser, and how the other tabs hear from it (contract 1, section 7).
