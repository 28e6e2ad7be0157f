//! Reproducible random numbers: xorshift64*, from a seed that is printed.

/// A stream of numbers, determined by its seed.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Streams with different `lane`s of one seed are independent: each pusher has its own, so
    /// that its numbers do not depend on the speed of another.
    pub(crate) fn new(seed: u64, lane: u64) -> Rng {
        let mut rng = Rng((seed ^ lane.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1));
        for _ in 0..8 {
            rng.next();
        }
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// At least `from`, below `to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + (self.next() >> 16) % (to - from)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.between(0, n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64) as usize]
    }
}

#[test]
fn same_seed_draws_the_same_values() {
    let draw = |seed, lane| (0..5).map(|_| Rng::new(seed, lane).next()).collect::<Vec<_>>();
    assert_eq!(draw(7, 1), draw(7, 1));
    assert_ne!(draw(7, 1), draw(7, 2));
    assert_ne!(draw(7, 1), draw(8, 1));
}
