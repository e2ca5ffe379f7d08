-- In which order a policy's servers are answered; what was there before was drawn by the weights.
ALTER TABLE policy ADD COLUMN "order" TEXT NOT NULL DEFAULT 'weighted'
    CONSTRAINT policy_order_is_known CHECK ("order" IN ('weighted', 'fixed', 'rotate', 'nearest'));
