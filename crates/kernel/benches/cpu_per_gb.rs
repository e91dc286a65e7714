//! Benchmark of the CPU time per GB of skyhop's modules in the kernel against the kernel's own congestion controls.
//!
//! Transfers over a veth pair are interleaved, so that other load on the machine affects both; the ratio is the
//! geometric mean over the pairs, with a 95 % confidence interval. Needs root and `ip`.

use std::io;

use skyhop_cc::Module;
use skyhop_kernel::register;

mod pair;

/// Modules, each with the kernel's congestion control that it is compared with: the same one, or one that also paces.
const COMPARED: [(&str, &str); 8] = [
    ("cubic", "cubic"),
    ("bbr", "bbr"),
    ("bbr2", "bbr"),
    ("bbr3", "bbr"),
    ("leocc", "bbr"),
    ("copa", "bbr"),
    ("vivace", "bbr"),
    ("vivudt", "bbr"),
];

fn main() -> io::Result<()> {
    if !pair::open("cpu_per_gb")? {
        return Ok(());
    }
    for (name, kernels) in COMPARED {
        let module = Module::find(name).map_err(io::Error::other)?;
        match register(module, &[]) {
            Ok(registered) => {
                pair::compare(&format!("skyhop:{name}"), kernels, registered.kernel_name())?
            }
            Err(error) => println!("cpu_per_gb: skipped: {error}"),
        }
    }
    Ok(())
}
