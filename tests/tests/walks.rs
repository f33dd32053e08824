//! Random walks of contract 1; see [`turnfast_tests::walks`]. A seed that failed once is a test of its own here.

use anyhow::Result;
use turnfast_tests::walks::{Kind, run};

/// Most walks: the real server in this process, so that it can come and go quickly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_walks_keep_every_promise() -> Result<()> {
    run(Kind::InProcess, 0..2_000, 64, 40).await
}

/// Fewer: the real binary, really killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn walks_keep_every_promise_through_real_kills() -> Result<()> {
    run(Kind::Binary, 10_000..10_060, 8, 8).await
}
