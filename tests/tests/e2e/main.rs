//! The product from outside: the real binary, driven over its wire. One module per promise.

mod harness;
