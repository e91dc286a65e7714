//! Build script: rebuilds the crate when a film is added to data/, which the embedding macro does not notice.

fn main() {
    println!("cargo:rerun-if-changed=../../data/films");
}
