//! When each component of the network must be visited next.

use skyhop_units::Instant;

/// The next visit of each of a fixed number of components, earliest first.
///
/// Each component stands in it exactly once, so that it stays as small as the network and never
/// holds a packet. Ties go to the component with the lower number: the order of visits depends on
/// nothing else.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// The next visit of each component; [`Instant::NEVER`] while it has none.
    at: Vec<Instant>,
    /// A binary heap of components.
    heap: Vec<u32>,
    /// Where each component stands in the heap.
    place: Vec<u32>,
}

impl Calendar {
    /// A calendar for `components` components without visits.
    pub(crate) fn new(components: usize) -> Self {
        let all: Vec<u32> = (0..components as u32).collect();
        Self { at: vec![Instant::NEVER; components], heap: all.clone(), place: all }
    }

    /// The component to visit next and when; `None` when nobody waits for anything.
    pub(crate) fn next(&self) -> Option<(usize, Instant)> {
        let first = *self.heap.first()? as usize;
        let at = self.at[first];
        (at < Instant::NEVER).then_some((first, at))
    }

    /// Sets the next visit of a component.
    pub(crate) fn set(&mut self, component: usize, at: Option<Instant>) {
        let at = at.unwrap_or(Instant::NEVER);
        let before = std::mem::replace(&mut self.at[component], at);
        let place = self.place[component] as usize;
        if at < before {
            self.rise(place);
        } else if at > before {
            self.sink(place);
        }
    }

    fn earlier(&self, a: u32, b: u32) -> bool {
        (self.at[a as usize], a) < (self.at[b as usize], b)
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.earlier(self.heap[place], self.heap[parent]) {
                return;
            }
            self.exchange(place, parent);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(&left_component) = self.heap.get(left) else { return };
            let child = match self.heap.get(left + 1) {
                Some(&right) if self.earlier(right, left_component) => left + 1,
                _ => left,
            };
            if !self.earlier(self.heap[child], self.heap[place]) {
                return;
            }
            self.exchange(place, child);
            place = child;
        }
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a] as usize] = a as u32;
        self.place[self.heap[b] as usize] = b as u32;
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
