//! Gravity model: the more inhabitants two sites have, the more flows run between them.

use super::{Draws, Pair};
use crate::plan::ground::Site;

/// Clients and servers of so many flows; the probability of a client and a server is proportional to the product of
/// their populations. The error says what is wrong.
pub(super) fn pairs(
    flows: u32,
    order: &[u32],
    sites: &[Site],
    draws: &mut Draws,
) -> Result<Vec<Pair>, String> {
    let population = |index: &u32| sites[*index as usize].known_population().map(u128::from);
    let populations = order.iter().map(population).collect::<Result<Vec<u128>, String>>()?;
    let total: u128 = populations.iter().sum();
    let before_server = sums(populations.iter().copied());
    // A client goes with all others as servers.
    let before_client = sums(populations.iter().map(|own| own * (total - own)));
    let (Some(&end), true) = (before_client.last(), before_client.last() > Some(&0)) else {
        return Err("has fewer than two sites with inhabitants".to_owned());
    };
    let draw = |_| {
        let client = place(&before_client, draws.below(end));
        let (own, own_begin) = (populations[client], before_server[client]);
        let mut drawn = draws.below(total - own);
        if drawn >= own_begin {
            drawn += own;
        }
        [order[client], order[place(&before_server, drawn)]]
    };
    Ok((0..flows).map(draw).collect())
}

/// Sums of the values before each value, and of all.
fn sums(values: impl Iterator<Item = u128>) -> Vec<u128> {
    let mut sums = vec![0];
    for value in values {
        sums.push(sums[sums.len() - 1] + value);
    }
    sums
}

/// Index of the value in whose part of the sum a number lies.
fn place(sums: &[u128], number: u128) -> usize {
    sums.partition_point(|sum| *sum <= number) - 1
}
