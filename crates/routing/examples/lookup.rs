//! Measures partition look-ups.
#![allow(clippy::print_stdout)]
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use routing::{Partition, Prefix, RegionId};

#[derive(Clone, Copy)]
struct Node {
    v: u64,
    l: u64,
    b0: u32,
    b1: u32,
}
struct Pop {
    direct: Vec<u32>,
    nodes: Vec<Node>,
    leaves: Vec<u32>,
}
const D: u32 = 16;
impl Pop {
    fn build(p: &Partition) -> Pop {
        let mut t = Pop { direct: vec![], nodes: vec![], leaves: vec![] };
        for i in 0..1u64 << D {
            let k = i << (64 - D);
            let l = p.lookup_v6(Ipv6Addr::from_bits(u128::from(k) << 64));
            if u32::from(l.scope) <= D {
                t.direct.push(l.region.get() << 8 | u32::from(l.scope));
            } else {
                let n = t.nodes.len() as u32;
                t.nodes.push(Node { v: 0, l: 0, b0: 0, b1: 0 });
                t.direct.push(1 << 31 | n);
                t.node(p, n as usize, k, D);
            }
        }
        t
    }
    fn node(&mut self, p: &Partition, at: usize, k: u64, len: u32) {
        let mut n = Node { v: 0, l: 0, b0: 0, b1: self.leaves.len() as u32 };
        let mut kids = vec![];
        let mut last = u32::MAX;
        for i in 0..64u64 {
            let sh = 64 - (len as i32) - 6;
            let c = if sh >= 0 { k | i << sh } else { k | i >> -sh };
            let l = p.lookup_v6(Ipv6Addr::from_bits(u128::from(c) << 64));
            if u32::from(l.scope) <= len + 6 {
                let w = l.region.get() << 8 | u32::from(l.scope);
                if w != last {
                    n.l |= 1 << i;
                    self.leaves.push(w);
                    last = w;
                }
            } else {
                n.v |= 1 << i;
                kids.push(c);
            }
        }
        n.b0 = self.nodes.len() as u32;
        self.nodes.resize(self.nodes.len() + kids.len(), n);
        self.nodes[at] = n;
        for (j, c) in kids.into_iter().enumerate() {
            self.node(p, n.b0 as usize + j, c, len + 6);
        }
    }
    #[inline]
    fn find(&self, key: u64) -> u32 {
        let mut e = self.direct[(key >> (64 - D)) as usize];
        if e >> 31 == 0 {
            return e;
        }
        e &= !(1 << 31);
        let mut k = key << D;
        loop {
            let n = &self.nodes[e as usize];
            let i = k >> 58;
            k <<= 6;
            let m = (2u64 << i).wrapping_sub(1);
            if n.v >> i & 1 == 1 {
                e = n.b0 + (n.v & m).count_ones() - 1;
            } else {
                return self.leaves[(n.b1 + (n.l & m).count_ones() - 1) as usize];
            }
        }
    }
}

fn measure(name: &str, entries: Vec<(Prefix, RegionId)>, rng: &mut fastrand::Rng) {
    let t = Instant::now();
    let p = Partition::compile(entries.iter().copied());
    println!("{name}: {} prefixes, compile {:?}, {:?}", entries.len(), t.elapsed(), p.size());
    const N: usize = 1 << 22;
    let v4: Vec<Ipv4Addr> = (0..N).map(|_| Ipv4Addr::from_bits(rng.u32(..))).collect();
    let mut best = f64::MAX;
    for _ in 0..9 {
        let t = Instant::now();
        let mut sum = 0u64;
        for a in &v4 {
            let leaf = p.lookup_v4(*a);
            sum = sum.wrapping_add(u64::from(leaf.region.get()) + u64::from(leaf.scope));
        }
        best = best.min(t.elapsed().as_nanos() as f64 / N as f64);
        std::hint::black_box(sum);
    }
    println!("  v4 uniform {best:.1} ns");
    let v6s: Vec<Prefix> = entries.iter().map(|e| e.0).filter(|p| p.address().is_ipv6()).collect();
    if v6s.is_empty() {
        return;
    }
    let v6: Vec<Ipv6Addr> = (0..N)
        .map(|_| {
            let p = v6s[rng.usize(..v6s.len())];
            let IpAddr::V6(a) = p.address() else { unreachable!() };
            let m = u128::MAX.checked_shr(u32::from(p.length())).unwrap_or(0);
            Ipv6Addr::from_bits(a.to_bits() | (rng.u128(..) & m))
        })
        .collect();
    let mut best = f64::MAX;
    for _ in 0..9 {
        let t = Instant::now();
        let mut sum = 0u64;
        for a in &v6 {
            let leaf = p.lookup_v6(*a);
            sum = sum.wrapping_add(u64::from(leaf.region.get()) + u64::from(leaf.scope));
        }
        best = best.min(t.elapsed().as_nanos() as f64 / N as f64);
        std::hint::black_box(sum);
    }
    println!("  v6 covered {best:.1} ns");
    if true {
        return;
    }
    let t = Pop::build(&p);
    let mut best = f64::MAX;
    for _ in 0..9 {
        let s = Instant::now();
        let mut sum = 0u64;
        for a in &v6 {
            sum += u64::from(t.find((a.to_bits() >> 64) as u64));
        }
        std::hint::black_box(sum);
        best = best.min(s.elapsed().as_nanos() as f64 / N as f64);
    }
    if false {
        println!(
            "x v6 poptrie {best:.1} ns; nodes {} leaves {} bytes {}",
            t.nodes.len(),
            t.leaves.len(),
            t.nodes.len() * 24 + t.leaves.len() * 4 + 262144
        );
    }
}

fn main() {
    let folder = std::env::var("POINTSMAN_DATA").unwrap_or("../shared/data".into());
    let file = std::fs::File::open(format!("{folder}/routing/country-cidrs.csv.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut names: Vec<&str> = vec![""];
    let mut entries = Vec::new();
    for line in text.lines().skip(1) {
        let (p, c) = line.split_once(',').unwrap();
        let id = names.iter().position(|n| *n == c).unwrap_or_else(|| {
            names.push(c);
            names.len() - 1
        });
        entries.push((p.parse::<Prefix>().unwrap(), RegionId::new(id as u32).unwrap()));
    }
    let mut rng = fastrand::Rng::with_seed(1);
    let r = |rng: &mut fastrand::Rng| RegionId::new(rng.u32(1..9)).unwrap();
    let eight: Vec<_> = entries.iter().map(|(p, r)| (*p, RegionId::new(r.get() % 8 + 1).unwrap())).collect();
    measure("countries", entries.clone(), &mut rng);
    measure("eight", eight, &mut rng);
    // Real prefixes, cut into longer ones until there are a million.
    let mut split = entries.clone();
    while split.len() < 1_000_000 {
        let (p, _) = split[rng.usize(..entries.len())];
        let max = if p.address().is_ipv4() { 24 } else { 48 };
        if p.length() >= max {
            continue;
        }
        let length = rng.u8(p.length() + 1..=max);
        let host = rng.u128(..);
        let a = match p.address() {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(
                a.to_bits() | (host as u32).checked_shr(p.length().into()).unwrap_or(0),
            )),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(
                a.to_bits() | host.checked_shr(p.length().into()).unwrap_or(0),
            )),
        };
        split.push((Prefix::new(a, length).unwrap(), r(&mut rng)));
    }
    measure("split", split, &mut rng);
    let v4: Vec<_> = (0..1_000_000)
        .map(|_| {
            (Prefix::new(Ipv4Addr::from_bits(rng.u32(..)).into(), rng.u8(16..=32)).unwrap(), r(&mut rng))
        })
        .collect();
    measure("random v4", v4, &mut rng);
    let v6: Vec<_> = (0..1_000_000)
        .map(|_| {
            (
                Prefix::new(Ipv6Addr::from_bits(rng.u128(..) >> 3 | 1 << 125).into(), rng.u8(32..=48))
                    .unwrap(),
                r(&mut rng),
            )
        })
        .collect();
    measure("random v6", v6, &mut rng);
}
