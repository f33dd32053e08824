//! Many open tabs: what each costs.

use anyhow::Result;
use turnfast_tests::client::Push;

use crate::House;

/// Bound for the memory of an idle follower of `/push`, in bytes.
const MOST: u64 = 64 * 1_024;

/// Enough that what the server allocates on the side does not count, few enough for the 1,024 files that a test may open.
const FOLLOWERS: usize = 400;

async fn follow(house: &House, count: usize) -> Result<Vec<Push>> {
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(house.alice.push().await?);
    }
    Ok(open)
}

#[tokio::test]
async fn an_idle_follower_takes_little_memory() -> Result<()> {
    let house = House::open().await?;
    // The first ones pay for what all share.
    let first = follow(&house, 20).await?;
    let before = house.server.resident_bytes()?;
    let more = follow(&house, FOLLOWERS).await?;
    let each = house.server.resident_bytes()?.saturating_sub(before) / FOLLOWERS as u64;
    assert!(each <= MOST, "an idle follower takes {each} bytes");

    // They are followers indeed: one change reaches every one of them.
    let live = house.alice.say("demo", "/long 1").await?;
    for mut push in first.into_iter().chain(more) {
        while push.update().await?.is_none_or(|update| update.thread_id != live.started.thread) {}
    }
    Ok(())
}
