//! When each component of the network must be visited next.

use skyhop_units::Instant;

/// The next visit of each of a fixed number of components, earliest first.
///
/// Each component stands in it exactly once, so that it stays as small as the network and never
/// holds a packet. Ties go to the component with the lower number: the order of visits depends on
/// nothing else.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// A complete binary tree, its root at 1 and the children of `n` at `2n` and `2n + 1`: in the leaves the next visit
    /// of each component, [`Instant::NEVER`] while it has none, and in every other node the earlier of its children's.
    tree: Box<[Instant]>,
}

impl Calendar {
    /// A calendar for `components` components without visits.
    pub(crate) fn new(components: usize) -> Self {
        let leaves = components.next_power_of_two();
        Self { tree: vec![Instant::NEVER; 2 * leaves].into() }
    }

    /// The component to visit next and when; `None` when nobody waits for anything.
    #[inline]
    pub(crate) fn next(&self) -> Option<(usize, Instant)> {
        let leaves = self.tree.len() / 2;
        let first = self.tree[1];
        let mut node = 1;
        while node < leaves {
            node = 2 * node + usize::from(self.tree[2 * node] > first);
        }
        (first < Instant::NEVER).then_some((node - leaves, first))
    }

    /// Sets the next visit of a component.
    #[inline]
    pub(crate) fn set(&mut self, component: usize, at: Option<Instant>) {
        let mut node = self.tree.len() / 2 + component;
        let mut at = at.unwrap_or(Instant::NEVER);
        while self.tree[node] != at {
            self.tree[node] = at;
            if node == 1 {
                return;
            }
            at = at.min(self.tree[node ^ 1]);
            node /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_earliest_component_comes_first_and_ties_go_to_the_lower_number(
            sets in prop::collection::vec((0_usize..9, prop::option::of(0_u64..20)), 1..200)
        ) {
            let mut calendar = Calendar::new(9);
            let mut simple = [Instant::NEVER; 9];
            for (component, at) in sets {
                let at = at.map(Instant::from_nanos);
                calendar.set(component, at);
                simple[component] = at.unwrap_or(Instant::NEVER);
                let first = (0..9).min_by_key(|c| (simple[*c], *c)).filter(|c| {
                    simple[*c] < Instant::NEVER
                });
                prop_assert_eq!(calendar.next(), first.map(|c| (c, simple[c])));
            }
        }
    }
}
