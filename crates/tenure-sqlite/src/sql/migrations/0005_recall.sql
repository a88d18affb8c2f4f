-- What tells whether the file is whole: a random number of its own and the number of its last commit, which stand beside
-- it as well (`<file>.mark`). Until `wait_until_us` no lease is granted, because the file may have forgotten some; `wait_why`
-- says why. The row of the clock is written with every commit, and so are these.
ALTER TABLE clock ADD COLUMN identity TEXT;
ALTER TABLE clock ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN wait_until_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN wait_why TEXT;
