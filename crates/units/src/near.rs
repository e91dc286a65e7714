//! Names that a user may have meant by a wrong one.

use std::collections::HashSet;

use strsim::jaro_winkler;

/// Characters of a name that are compared, because the comparison takes quadratic time.
const LONGEST: usize = 64;
/// Largest number of names that a message suggests.
const MOST: usize = 3;
/// Number of characters from which a wrong name may be the beginning of the right one.
const BEGINNING: usize = 3;
/// Least likeness (Jaro-Winkler, from 0 to 1) of a suggested name.
const LIKENESS: f64 = 0.8;
/// Largest difference in likeness between the nearest name and the others that a message suggests.
const MARGIN: f64 = 0.02;

/// Text " (did you mean X?)" with the known names that resemble the wrong one, empty if none does.
///
/// These are the names with the same letters and digits; else those that begin with the wrong one; else the nearest.
pub fn did_you_mean<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    match near_names(name, known).as_slice() {
        [] => String::new(),
        [only] => format!(" (did you mean {only}?)"),
        [first @ .., last] => format!(" (did you mean {} or {last}?)", first.join(", ")),
    }
}

/// Known names that resemble the wrong one, each once, in the order in which a message suggests them.
fn near_names<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let wanted = folded(name);
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let known: Vec<(&str, String)> = known
        .into_iter()
        .filter(|known| seen.insert(*known))
        .map(|known| (known, folded(known)))
        .collect();
    let of = |is_near: &dyn Fn(&str) -> bool| -> Vec<&'k str> {
        let near = known.iter().filter(|(_, folded)| is_near(folded));
        near.map(|(known, _)| *known).collect()
    };
    let mut near = of(&|known| known == wanted);
    if near.is_empty() && wanted.chars().count() >= BEGINNING {
        near = of(&|known| known.starts_with(&wanted));
        near.sort_by_key(|known| known.len());
    }
    if near.is_empty() {
        let mut likest: Vec<(f64, &str)> =
            known.iter().map(|(known, folded)| (jaro_winkler(&wanted, folded), *known)).collect();
        likest.sort_by(|a, b| b.0.total_cmp(&a.0));
        let least = likest.first().map_or(1.0, |(best, _)| (best - MARGIN).max(LIKENESS));
        near = likest.iter().filter(|(like, _)| *like >= least).map(|(_, known)| *known).collect();
    }
    near.truncate(MOST);
    near
}

/// Letters and digits of a name, in lower case.
fn folded(name: &str) -> String {
    let plain = name.chars().filter(|letter| letter.is_alphanumeric());
    plain.flat_map(char::to_lowercase).take(LONGEST).collect()
}
