//! Seeds of random streams: one per component, so that adding a component does not change the draws of another.

/// Seed of the component called `name` in a run with `run_seed`.
pub fn seed_for(run_seed: u64, name: &str) -> u64 {
    // FNV-1a over the name, then SplitMix64's finaliser over both, so that similar inputs give unrelated seeds.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mixed = run_seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(hash);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
